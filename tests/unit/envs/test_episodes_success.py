"""Success is a metric of those environments that say whether their task is solved, and of no others."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.env import GymnasiumEnvConfig
from rlinf.envs import check_vector_env, make_vector_env
from rlinf.telemetry.evaluation import EvalEpisode, evaluation_table, mean_metrics

PLAIN = {"return", "reward", "episode_len"}
SUCCESS = {"success_once", "success_at_end"}


class SaysOnlySuccess(gymnasium.Env):
    """Ends after four steps; its info has a key only in an episode that succeeds, at the end."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[Any, Any]]:
        self.time, self.succeeds = 0, bool((seed or 0) % 2)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, bool]]:
        self.time += 1
        ended = self.time == 4
        return np.zeros(1, np.float32), 0.0, ended, False, {"success": True} if ended and self.succeeds else {}


class AlwaysFails(SaysOnlySuccess):
    """Its info has the key at every step, and no episode succeeds."""

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, bool]]:
        obs, reward, terminated, truncated, _ = super().step(action)
        return obs, reward, terminated, truncated, {"success": False}


gymnasium.register("SaysOnlySuccess-v0", SaysOnlySuccess)
gymnasium.register("AlwaysFails-v0", AlwaysFails)


def config(env_id: str, **keys: int) -> GymnasiumEnvConfig:
    return GymnasiumEnvConfig(
        env_type="gymnasium",
        total_num_envs=4,
        max_episode_steps=20,
        max_steps_per_rollout_epoch=40,
        init_params={"id": env_id},
        **keys,
    )


def episodes_of(cfg: GymnasiumEnvConfig, chunks: int = 2) -> list[dict[str, float]]:
    with closing(make_vector_env(cfg, num_envs=cfg.total_num_envs)) as env:
        env.reset(0)
        return [episode for _ in range(chunks) for episode in env.chunk_step(torch.zeros(4, 20).long()).episodes]


@pytest.mark.parametrize("processes", [0, 2])
def test_cartpole_has_no_success(processes: int) -> None:
    episodes = episodes_of(config("CartPole-v1", num_env_processes=processes))
    assert episodes
    assert all(set(episode) == PLAIN for episode in episodes)


def test_an_environment_without_success_keeps_the_rules() -> None:
    with closing(make_vector_env(config("CartPole-v1"), num_envs=2)) as env:
        check_vector_env(env)


def test_an_environment_that_says_so_at_every_step_has_success() -> None:
    cfg = validate_cfg(load_recipe("pixel_reach_ppo_cnn", [])).env.train
    with closing(make_vector_env(cfg, num_envs=2)) as env:
        env.reset(0)
        steps = cfg.max_episode_steps
        episodes = [episode for _ in range(2) for episode in env.chunk_step(torch.zeros(2, steps, 2)).episodes]
    assert episodes
    assert all(set(episode) == PLAIN | SUCCESS for episode in episodes)


def test_success_that_is_only_said_when_it_happens_is_known_from_then_on() -> None:
    episodes = episodes_of(config("SaysOnlySuccess-v0"), chunks=8)
    known = ["success_once" in episode for episode in episodes]
    assert known == sorted(known), "once known, every episode has it"
    assert {0.0, 1.0} == {episode["success_once"] for episode in episodes if "success_once" in episode}


def test_an_environment_that_says_that_it_failed_has_success() -> None:
    episodes = episodes_of(config("AlwaysFails-v0"))
    assert episodes
    assert all(episode["success_once"] == 0.0 for episode in episodes)


def episode(env: int, **metrics: float) -> EvalEpisode:
    return EvalEpisode(0, env, 0, metrics={"return": 1.0, "episode_len": 3.0, **metrics})


def test_an_evaluation_without_success_has_no_such_metric_and_no_such_column() -> None:
    episodes = [episode(0), episode(1)]
    assert set(mean_metrics(episodes)) == {"eval/return", "eval/episode_len"}
    table = evaluation_table(episodes)
    assert [column.header for column in table.columns] == ["task", "episodes", "return", "length"]


def test_episodes_that_do_not_say_so_have_failed_where_others_do() -> None:
    episodes = [episode(0), episode(1, success_once=1.0, success_at_end=1.0), episode(2), episode(3)]
    assert mean_metrics(episodes)["eval/success_once"] == 0.25
    assert [column.header for column in evaluation_table(episodes).columns][2] == "success"
