"""``env_type: d4rl`` keeps the rules of environments and reports scores of whole returns."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rlinf.config import load_recipe, validate_cfg
from rlinf.config.metric_names import eval_metric_names
from rlinf.config.schema.env import D4RLEnvConfig
from rlinf.envs import make_vector_env
from rlinf.envs.conformance import check_vector_env
from rlinf.errors import ConfigError

pytest.importorskip("mujoco", reason="needs the package mujoco")


def config(task_name: str = "hopper-medium-v2", **keys: Any) -> D4RLEnvConfig:
    return D4RLEnvConfig(env_type="d4rl", task_name=task_name, total_num_envs=2, max_steps_per_rollout_epoch=8, **keys)


def test_the_environment_conforms() -> None:
    cfg = config(max_episode_steps=4)
    with make_vector_env(cfg, num_envs=2) as env:
        assert env.observation_space["states"].shape == (11,)
        check_vector_env(env, rebuild=lambda: make_vector_env(cfg, num_envs=2))


@pytest.mark.parametrize(("reference", "low", "high"), [(None, -280.178953, 12135.0), ([-1.0, 3.0], -1.0, 3.0)])
def test_scores_are_those_of_unshaped_returns(reference: list[float] | None, low: float, high: float) -> None:
    cfg = config("halfcheetah-medium-v2", max_episode_steps=4, reward_coef=0.5, reference_returns=reference)
    with make_vector_env(cfg, num_envs=2) as env:
        env.reset(0)
        step = env.chunk_step(torch.ones(2, 4, 6))
    for row, episode in enumerate(step.episodes):
        total = 2 * float(step.rewards[row].double().sum())
        assert episode["return"] == pytest.approx(total, rel=1e-5)
        assert episode["normalized_score"] == pytest.approx(100 * (total - low) / (high - low), rel=1e-5)


def test_a_family_without_an_environment_is_refused() -> None:
    with pytest.raises(ConfigError, match="hopper, pen, walker2d"):
        make_vector_env(config("kitchen-mixed-v0"), num_envs=1)


def test_recipes_can_name_the_score_where_there_is_one() -> None:
    cfg: Any = validate_cfg(load_recipe("d4rl_hopper_iql_mlp", ["runner.keep_best=eval/normalized_score"]))
    assert "eval/normalized_score" in eval_metric_names(cfg)
    other: Any = validate_cfg(load_recipe("gym_pendulum_iql_mlp"))
    assert "eval/normalized_score" not in eval_metric_names(other)


def test_a_dropped_pen_ends_the_episode_and_rewards_are_those_of_the_hand() -> None:
    pytest.importorskip("gymnasium_robotics", reason="needs the package gymnasium_robotics")
    cfg = config("pen-human-v0", max_episode_steps=100, auto_reset=False)
    with make_vector_env(cfg, num_envs=2) as env:
        assert env.observation_space["states"].shape == (45,)
        env.reset(0)
        for _ in range(100):
            # The hand turns over.
            step = env.chunk_step(torch.tensor([[[0.0, 1.0] + [-1.0] * 22]] * 2))
            if step.final_ids is not None:
                break
    assert step.final_ids is not None
    assert step.final_obs is not None
    for index, row in enumerate(step.final_ids.tolist()):
        assert bool(step.terminations[row, 0])
        assert step.final_obs["states"][index, 26] < 0.075
        episode = step.episodes[index]
        assert 1 < episode["episode_len"] < 100
        scale = 3076.8331018026877 - 96.262799
        assert episode["normalized_score"] == pytest.approx(100 * (episode["return"] - 96.262799) / scale, rel=1e-5)
