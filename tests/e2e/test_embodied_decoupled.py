"""The decoupled mode: it does not matter which rollout rank serves an env rank, nor how many there are."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.test_runner_recovery import wait_for_restart, wait_for_step, worker_pid
from tests.e2e.conftest import ASYNC_ENTRY, TINY, ranks, read_metrics

pytestmark = pytest.mark.timeout(400)
DECOUPLED = "runner.enable_decoupled_mode=true"
SHORT_EVALUATION = ("env.eval.max_steps_per_rollout_epoch=20", "env.eval.max_episode_steps=20")


def test_a_deterministic_policy_gets_the_results_of_the_bound_mode(train: Callable[..., Any]) -> None:
    recipe = "gym_pendulum_td3_mlp"
    keys = ("runner.max_epochs=6", "runner.val_check_interval=3", "env.train.total_num_envs=12")
    keys = (*keys, "env.eval.total_num_envs=12", "algorithm.update_epoch=4", "actor.model.exploration_noise=0.0")
    keys = (*keys, *SHORT_EVALUATION, "algorithm.replay_buffer.min_buffer_size=200")
    # Batches of the same size, so that not even rounding differs.
    modes = (ranks(env=3, rollout=3), (DECOUPLED, *ranks(env=3, rollout=2)))
    bound, decoupled = (read_metrics(train(recipe, *keys, *mode)) for mode in modes)
    assert decoupled == bound
    assert "train/actor_loss" in bound[-1]


def test_what_is_drawn_does_not_depend_on_who_serves(train: Callable[..., Any]) -> None:
    recipe = "gym_cartpole_ppo_mlp"
    keys = (*TINY, DECOUPLED, "env.train.total_num_envs=12", "env.eval.total_num_envs=12")
    keys = (*keys, *SHORT_EVALUATION, "rollout.pipeline_stage_num=2", "env.train.rollout_epoch=2")
    alone, shared = (read_metrics(train(recipe, *keys, *ranks(env=3, rollout=rollout))) for rollout in (1, 2))
    assert shared == alone
    assert shared[-1]["env/return"] > 0


def test_ahead_of_training_every_sample_is_as_fresh_as_the_bound_says_and_a_killed_rank_comes_back(
    start_run: Callable[..., Any], one_node: str, tmp_path: Path
) -> None:
    recipe, steps = "gym_cartpole_async_ppo_mlp", 12
    keys = (*TINY, DECOUPLED, *ranks(env=3, rollout=2), "env.train.total_num_envs=12")
    keys = (*keys, "env.eval.total_num_envs=12", "algorithm.update_epoch=20")
    keys = (*keys, "runner.val_check_interval=-1", f"runner.max_epochs={steps}", "runner.max_restarts=1")
    keys = (*keys, "algorithm.staleness_threshold=1", f"runner.logger.log_path={tmp_path}")
    run = start_run(recipe, *keys, entry=ASYNC_ENTRY, env={"RAY_ADDRESS": one_node})
    folder = tmp_path / recipe
    wait_for_step(run, folder, 3)
    os.kill(worker_pid(folder, "RolloutGroup_1"), signal.SIGKILL)
    wait_for_restart(folder, "RolloutGroup_1")
    assert run.wait() == 0, run.output[-4000:]
    assert not run.survivors()
    found = read_metrics(folder)
    assert "restart 1 of at most 1" in run.output
    assert [record["step"] for record in found] == list(range(1, steps + 1))
    staleness = [record["rollout/staleness_max"] for record in found]
    assert max(staleness) == 1
