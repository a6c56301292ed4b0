"""``env_type: langpick`` keeps the rules of environments; its expert lifts what the sentence names."""

import pytest
import torch
from langpick_configs import langpick_config

from rlinf.config.registries import scripted_policies
from rlinf.config.schema.env import LangPickEnvConfig
from rlinf.data.messages.embodied import Observation
from rlinf.envs import make_vector_env
from rlinf.envs.conformance import check_vector_env
from rlinf.envs.simulators.langpick_single import DESCRIPTIONS
from rlinf.errors import ConfigError


def play(cfg: LangPickEnvConfig, *, named: int) -> list[float]:
    """Return the successes of an expert who is told to lift the cube ``named`` places behind the right one."""
    expert = scripted_policies.get("langpick")(cfg)
    with make_vector_env(cfg, num_envs=cfg.total_num_envs) as env:
        obs, episodes = env.reset(0), list[dict[str, float]]()
        while len(episodes) < cfg.total_num_envs:
            tasks = [DESCRIPTIONS[(DESCRIPTIONS.index(task) + named) % 3] for task in obs["task_descriptions"]]
            step = env.chunk_step(expert({**obs, "task_descriptions": tasks}))
            obs, episodes = step.obs, [*episodes, *step.episodes]
    return [episode["success_once"] for episode in episodes]


@pytest.mark.parametrize("num_env_processes", [0, 1])
def test_cubes_and_sentences_conform(num_env_processes: int) -> None:
    cfg = langpick_config(total_num_envs=2, num_env_processes=num_env_processes, disturbance=0.5, random_hand=True)
    with make_vector_env(cfg, num_envs=2) as env:
        assert env.observation_space["main_images"].shape == (32, 32, 3)
        check_vector_env(env, rebuild=lambda: make_vector_env(cfg, num_envs=2))


def test_the_expert_lifts_the_cube_that_is_named_and_no_other() -> None:
    cfg = langpick_config(
        show_objects=True,
        image_size=16,
        max_episode_steps=30,
        max_steps_per_rollout_epoch=30,
        auto_reset=False,
        group_size=1,
    )
    assert play(cfg, named=0) == [1.0] * 4
    assert play(cfg, named=1) == [0.0] * 4


def test_a_pushed_expert_goes_on_from_where_it_is() -> None:
    cfg = langpick_config(
        show_objects=True,
        image_size=16,
        total_num_envs=8,
        disturbance=0.1,
        max_episode_steps=60,
        max_steps_per_rollout_epoch=60,
        auto_reset=False,
        group_size=1,
    )
    assert sum(play(cfg, named=0)) >= 7.0


def test_a_group_has_one_sentence_and_one_scene() -> None:
    with make_vector_env(langpick_config(show_objects=True), num_envs=4) as env:
        scenes = [env.reset(epoch) for epoch in range(8)]
    for obs in scenes:
        for key in ("objects", "main_images", "states"):
            assert torch.equal(obs[key][0], obs[key][1])
        assert obs["task_descriptions"][0] == obs["task_descriptions"][1]
        assert not torch.equal(obs["objects"][0], obs["objects"][2])
    assert {task for obs in scenes for task in obs["task_descriptions"]} == set(DESCRIPTIONS)


def test_the_expert_needs_the_cubes_positions() -> None:
    with pytest.raises(ConfigError, match="show_objects: true"):
        scripted_policies.get("langpick")(langpick_config())
    expert = scripted_policies.get("langpick")(langpick_config(show_objects=True))
    cubes = torch.tensor([[0.5, 0.1, 0.02, 0.45, -0.1, 0.02, 0.55, 0.0, 0.02]])
    near = torch.tensor([[0.45, -0.1, 0.09, 0.08]])  # above the green one
    obs: Observation = {"states": near, "objects": cubes, "task_descriptions": [DESCRIPTIONS[1]]}
    assert expert(obs).tolist() == [[[0.0, 0.0, -1.0, 1.0]]]
