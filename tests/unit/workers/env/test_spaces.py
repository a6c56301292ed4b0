"""Sizes that a recipe leaves out are the environment's; those that it gives are compared with it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.root import RLinfConfig
from rlinf.config.schema.vla import VLAConfig
from rlinf.envs import make_vector_env
from rlinf.errors import ConfigError
from rlinf.models import get_policy
from rlinf.workers.env.spaces import PolicySizes, check_sizes, fill_sizes, leaves_sizes, sizes_of

CARTPOLE = PolicySizes(obs_dim=4, action_dim=2, discrete=True)
PENDULUM = PolicySizes(obs_dim=3, action_dim=1, discrete=False)
PIXELS = PolicySizes(obs_dim=2, action_dim=2, discrete=False, images={"main_images": (48, 48, 3)})
LEFT_OUT = ("~actor.model.obs_dim", "~actor.model.action_dim")


def recipe(name: str, *overrides: str) -> RLinfConfig:
    return validate_cfg(load_recipe(name, overrides))


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("gym_cartpole_ppo_mlp", CARTPOLE),
        ("gym_pendulum_ppo_mlp", PENDULUM),
        ("pixel_reach_ppo_cnn", PIXELS),
    ],
)
def test_sizes_of_environments(name: str, sizes: PolicySizes) -> None:
    with closing(make_vector_env(recipe(name).env.train, num_envs=2)) as env:
        assert sizes_of(env) == sizes


def test_wrappers_change_what_a_policy_sees() -> None:
    stack = "env.train.wrappers=[{name: frame_stack, num_frames: 3, keys: [states]}]"
    with closing(make_vector_env(recipe("gym_cartpole_ppo_mlp", stack).env.train, num_envs=1)) as env:
        assert sizes_of(env).obs_dim == 12


def test_what_is_left_out_is_taken_from_the_environment() -> None:
    cfg = recipe("gym_cartpole_ppo_mlp", *LEFT_OUT, "~actor.model.discrete")
    assert leaves_sizes(cfg)
    model = fill_sizes(cfg, CARTPOLE).actor.model
    assert (model.obs_dim, model.action_dim, model.discrete) == (4, 2, True)
    assert not leaves_sizes(fill_sizes(cfg, CARTPOLE))
    get_policy(model)


def test_what_is_given_stays() -> None:
    cfg = recipe("gym_cartpole_ppo_mlp", "actor.model.obs_dim=5")
    assert not leaves_sizes(cfg)
    assert not leaves_sizes(recipe("pixel_reach_ppo_cnn")), "0 is a model that sees images only"
    assert fill_sizes(cfg, CARTPOLE) == cfg


def test_the_expert_sees_the_same_environment() -> None:
    expert = (
        "~algorithm.expert",
        "+algorithm.expert={expert_type: policy, ckpt_path: weights.pt, model: {model_type: mlp_policy}}",
    )
    cfg = recipe("metaworld_reach_dagger_mlp", *expert)
    assert leaves_sizes(cfg)
    model = fill_sizes(cfg, PolicySizes(39, 4, discrete=False)).algorithm.loss.expert.model
    assert (model.obs_dim, model.action_dim) == (39, 4)


def test_actions_that_the_algorithm_cannot_learn_are_refused_once_they_are_known() -> None:
    cfg = recipe("gym_pendulum_sac_mlp", *LEFT_OUT)
    with pytest.raises(ConfigError, match=r"actor\.model\.discrete: received True"):
        fill_sizes(cfg, CARTPOLE)


def test_an_environment_without_states_is_told() -> None:
    cfg = recipe("gym_cartpole_ppo_mlp", *LEFT_OUT)
    with pytest.raises(ConfigError, match=r"actor\.model\.obs_dim: .*no vector of states.*cnn_policy"):
        fill_sizes(cfg, PolicySizes(None, 2, discrete=True))


def test_sizes_that_differ_are_told_together() -> None:
    model = recipe("gym_cartpole_ppo_mlp", "actor.model.obs_dim=5", "actor.model.action_dim=3").actor.model
    with pytest.raises(ConfigError) as caught:
        check_sizes(model, CARTPOLE, "env.eval")
    text = str(caught.value)
    assert "actor.model.obs_dim: received 5; env.eval has 4." in text
    assert "actor.model.action_dim: received 3; env.eval has 2." in text
    assert "discrete: received" not in text
    assert "leave obs_dim, action_dim and discrete out" in text


def test_a_gaussian_on_discrete_actions_is_told() -> None:
    model = recipe("gym_cartpole_ppo_mlp", "~actor.model.discrete").actor.model
    with pytest.raises(ConfigError, match=r"actor\.model\.discrete: received false; env\.train has true"):
        check_sizes(model, CARTPOLE, "env.train")


def test_states_that_are_not_those_of_the_checkpoint_are_told() -> None:
    model = recipe("langpick_ppo_openpi_tiny").actor.model
    assert isinstance(model, VLAConfig)
    sizes = PolicySizes(4, model.action_dim, discrete=False)
    check_sizes(model, sizes, "env.train")
    check_sizes(replace(model, state_dim=None), replace(sizes, obs_dim=7), "env.train")
    for obs_dim, text in ((7, "states of 7 numbers"), (None, "no vector of states")):
        with pytest.raises(ConfigError, match=f"state_dim: received 4; env.eval shows {text}"):
            check_sizes(model, replace(sizes, obs_dim=obs_dim), "env.eval")


def test_sizes_that_fit_pass() -> None:
    check_sizes(recipe("gym_cartpole_ppo_mlp").actor.model, CARTPOLE, "env.train")
    check_sizes(recipe("gym_cartpole_ppo_mlp", *LEFT_OUT, "~actor.model.discrete").actor.model, PENDULUM, "env.train")
    check_sizes(recipe("pixel_reach_ppo_cnn").actor.model, PIXELS, "env.train")


def test_image_sizes_and_states_are_taken_from_the_environment() -> None:
    left_out = ("~actor.model.image_size", "actor.model.obs_dim=null", "env.train.image_size=32")
    cfg = recipe("pixel_reach_ppo_cnn", *left_out)
    assert leaves_sizes(cfg)
    assert leaves_sizes(recipe("pixel_reach_ppo_cnn", left_out[0]))
    with closing(make_vector_env(cfg.env.train, num_envs=1)) as env:
        sizes = sizes_of(env)
    check_sizes(cfg.actor.model, sizes, "env.train")
    model = fill_sizes(cfg, sizes).actor.model
    assert (model.image_size, model.obs_dim) == ([32, 32], 2)
    get_policy(model)
    assert fill_sizes(recipe("pixel_reach_ppo_cnn"), sizes).actor.model.image_size == [48, 48], "what is given stays"


def test_stacked_frames_are_counted_by_their_channels() -> None:
    stack = "env.train.wrappers=[{name: frame_stack, num_frames: 2, keys: [main_images]}]"
    cfg = recipe("pixel_reach_ppo_cnn", stack, "actor.model.num_frames=2", "~actor.model.image_size")
    with closing(make_vector_env(cfg.env.train, num_envs=1)) as env:
        sizes = sizes_of(env)
    assert sizes.images == {"main_images": (48, 48, 6)}
    check_sizes(fill_sizes(cfg, sizes).actor.model, sizes, "env.train")


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("actor.model.image_size=[48,64]", r"image_size: received \[48, 64\]; main_images of env.train has \[48, 48\]"),
        ("actor.model.num_frames=2", "num_frames: received 2, which have 6 channels; main_images of env.train has 3"),
        ("actor.model.image_keys=[wrist_images]", "image_keys: received wrist_images; env.train shows main_images"),
    ],
)
def test_images_that_differ_are_an_error(override: str, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"actor\.model\.{text}\.\n.*leave image_size"):
        check_sizes(recipe("pixel_reach_ppo_cnn", override).actor.model, PIXELS, "env.train")


def test_an_environment_without_images_is_an_error() -> None:
    cfg = recipe("pixel_reach_ppo_cnn", "~actor.model.image_size")
    with pytest.raises(ConfigError, match=r"image_keys: received main_images; the environment shows no images"):
        fill_sizes(cfg, PENDULUM)


def test_a_model_of_images_built_by_itself_needs_their_size() -> None:
    with pytest.raises(ConfigError, match=r"actor\.model\.image_size: missing.*Give image_size"):
        get_policy(recipe("pixel_reach_ppo_cnn", "~actor.model.image_size").actor.model)


def test_without_an_environment_sizes_are_required() -> None:
    overrides = (*LEFT_OUT, "~env.eval", "env.eval=null", "runner.val_check_interval=-1")
    with pytest.raises(ConfigError, match=r"actor\.model\.obs_dim: missing; there is no environment"):
        recipe("gym_pendulum_bc_mlp", *overrides)


def test_a_model_built_by_itself_says_which_size_it_misses() -> None:
    with pytest.raises(ConfigError, match=r"actor\.model\.obs_dim: missing.*Give obs_dim"):
        get_policy(recipe("gym_cartpole_ppo_mlp", *LEFT_OUT).actor.model)


def test_the_teacher_sees_the_same_environment() -> None:
    sizes = ("~algorithm.teacher.model.obs_dim", "~algorithm.teacher.model.action_dim")
    cfg = recipe("gym_cartpole_opd_mlp", *sizes, "~algorithm.teacher.model.discrete")
    assert leaves_sizes(cfg)
    model = fill_sizes(cfg, PolicySizes(4, 2, discrete=True)).algorithm.teacher.model
    assert (model.obs_dim, model.action_dim, model.discrete) == (4, 2, True)


def test_a_flow_on_images_takes_their_size_from_the_environment() -> None:
    sizes = PolicySizes(2, 2, discrete=False, images={"main_images": (48, 48, 3)})
    cfg = recipe("pixel_reach_sac_flow_cnn", "~actor.model.image_size")
    assert leaves_sizes(cfg)
    assert fill_sizes(cfg, sizes).actor.model.image_size == [48, 48]
    assert not leaves_sizes(recipe("gym_pendulum_sac_flow")), "without cameras there is no size to fill in"
    wrong = recipe("pixel_reach_sac_flow_cnn", "actor.model.image_size=[32, 32]").actor.model
    with pytest.raises(ConfigError, match=r"actor\.model\.image_size: received \[32, 32\]"):
        check_sizes(wrong, sizes, "env.train")
