"""A policy is loaded from a run's folder, and maps an environment's observations to its actions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
import yaml

import rlinf
from rlinf.config import load_recipe, to_dict, validate_cfg
from rlinf.errors import CheckpointError, ConfigError
from rlinf.telemetry.rundir import CONFIG_FILE
from tests.unit.api.saved_policies import save_policy

OBS = np.array([0.1, -0.2, 0.03, 0.4], dtype=np.float32)
CHUNKED = ("actor.model.num_action_chunks=2", "actor.model.obs_dim=3", "actor.model.action_dim=1")


def expected(model: Any, states: np.ndarray) -> np.ndarray:
    actions, _ = model.predict_action_batch({"states": torch.from_numpy(states)}, mode="eval")
    return np.asarray(actions)


@pytest.mark.parametrize("inner", ["", "checkpoints", "checkpoints/global_step_3"])
def test_the_newest_checkpoint_of_a_run_is_loaded(tmp_path: Path, inner: str) -> None:
    _, model = save_policy(tmp_path)
    policy = rlinf.load_policy(tmp_path / inner)
    assert policy.checkpoint.name == "global_step_3"
    states = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    found = policy.predict(states)
    assert found.tolist() == expected(model, states)[:, 0].tolist()
    assert set(found.tolist()) == {0, 1}, "the weights are not those of a new policy"


def test_one_observation_gives_an_action_that_gymnasium_takes(tmp_path: Path) -> None:
    save_policy(tmp_path)
    policy = rlinf.load_policy(str(tmp_path))
    action = policy.predict(OBS)
    assert action.shape == ()
    assert gymnasium.spaces.Discrete(2).contains(action[()])
    for given in (OBS.tolist(), torch.from_numpy(OBS), {"states": OBS}, OBS.astype(np.float64)):
        assert policy.predict(given) == action
    assert policy.predict(OBS[None]).tolist() == [int(action)]


def test_samples_differ_and_repeat_with_the_policy(tmp_path: Path) -> None:
    save_policy(tmp_path, "gym_pendulum_ppo_mlp", "actor.model.obs_dim=3", "actor.model.action_dim=1")
    first, again = rlinf.load_policy(tmp_path), rlinf.load_policy(tmp_path)
    samples = [float(first.predict(OBS[:3], deterministic=False)[0]) for _ in range(3)]
    assert len(set(samples)) == 3
    assert [float(again.predict(OBS[:3], deterministic=False)[0]) for _ in range(3)] == samples
    assert first.predict(OBS[:3]).shape == (1,)
    assert first.predict(OBS[:3]) == first.predict(OBS[:3])


def test_chunks_keep_their_dimension(tmp_path: Path) -> None:
    save_policy(tmp_path, "gym_pendulum_ppo_mlp", *CHUNKED)
    policy = rlinf.load_policy(tmp_path)
    assert policy.predict(OBS[:3]).shape == (2, 1)
    assert policy.predict(OBS[None, :3]).shape == (1, 2, 1)


def test_images_are_seen(tmp_path: Path) -> None:
    cfg, model = save_policy(
        tmp_path, "pixel_reach_ppo_cnn", "actor.model.obs_dim=0", "actor.model.image_size=[32, 32]"
    )
    policy = rlinf.load_policy(tmp_path)
    image = np.random.default_rng(0).integers(0, 255, cfg.actor.model.image_shape, dtype=np.uint8)
    batch = {"main_images": torch.from_numpy(image)[None]}
    right = model.predict_action_batch(batch, mode="eval")[0][0, 0]
    assert policy.predict(image).tolist() == right.tolist()
    assert policy.predict({"main_images": image[None]})[0].tolist() == right.tolist()


@pytest.mark.parametrize(
    ("obs", "received"), [(OBS[:3], "[3]"), ({"state": OBS}, "state"), (np.zeros((2, 5), np.float32), "[5]")]
)
def test_an_observation_of_another_environment_is_refused(tmp_path: Path, obs: Any, received: str) -> None:
    save_policy(tmp_path)
    with pytest.raises(ConfigError, match=r"'states' of shape \[4\]") as caught:
        rlinf.load_policy(tmp_path).predict(obs)
    assert f"received {received}" in str(caught.value)


def test_folders_without_a_policy_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(CheckpointError, match="Give the folder of a run"):
            rlinf.load_policy(path)
    save_policy(tmp_path)
    (tmp_path / "config.yaml").rename(tmp_path / "moved.yaml")
    with pytest.raises(ConfigError, match=r"config\.yaml"):
        rlinf.load_policy(tmp_path)


def test_a_language_model_is_not_loaded_as_a_policy(tmp_path: Path) -> None:
    save_policy(tmp_path)
    import yaml

    from rlinf.config import load_recipe, to_dict, validate_cfg

    (tmp_path / "config.yaml").write_text(yaml.safe_dump(to_dict(validate_cfg(load_recipe("tiny_math_grpo")))))
    with pytest.raises(ConfigError, match="transformers"):
        rlinf.load_policy(tmp_path)


@pytest.mark.parametrize(
    ("recipe", "text"),
    [("tiny_math_grpo", "language model .* load its folder 'hf'"), ("pixel_reach_reward_model", "judges frames")],
)
def test_what_does_not_act_says_what_it_is_for(recipe: str, text: str, tmp_path: Path) -> None:
    save_policy(tmp_path)
    (tmp_path / CONFIG_FILE).write_text(yaml.safe_dump(to_dict(validate_cfg(load_recipe(recipe)))))
    with pytest.raises(ConfigError, match=text):
        rlinf.load_policy(tmp_path)
