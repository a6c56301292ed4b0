"""Asynchronous runs: as synchronous ones where nothing may be stale, bounded where it may, and as robust."""

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import ASYNC_ENTRY, TINY, ranks, read_metrics

pytestmark = pytest.mark.timeout(300)
RECIPE = "gym_cartpole_async_ppo_mlp"


def test_threshold_zero_is_the_synchronous_algorithm_bit_for_bit(train: Callable[..., Any]) -> None:
    keys = (*TINY, "runner.max_epochs=4", "runner.save_interval=3")
    expected = read_metrics(train("gym_cartpole_ppo_mlp", *keys))
    keys = (*keys, "algorithm.staleness_threshold=0", "algorithm.loss_type=actor_critic")
    received = read_metrics(train(RECIPE, *keys))
    staleness = [(r.pop("rollout/staleness_mean", 0), r.pop("rollout/staleness_max", 0)) for r in received]
    assert staleness == [(0, 0)] * 5
    assert received == expected
    assert "train/actor_loss" in expected[-1]


def test_staleness_reaches_its_bound_and_no_more_and_segments_begin_fresh(train: Callable[..., Any]) -> None:
    # Training takes longer than a rollout: rollouts begin as early as they may.
    keys = (*TINY, "runner.max_epochs=8", "runner.val_check_interval=4", "algorithm.staleness_threshold=2")
    steps = {r["step"]: r for r in read_metrics(train(RECIPE, *keys, "algorithm.update_epoch=40"))}
    assert list(steps) == list(range(9))
    staleness = [steps[step]["rollout/staleness_max"] for step in range(1, 9)]
    # Evaluations after steps 4 and 8: the rollouts of steps 1-3 and 5-7 begin with the weights of steps 0 and 4.
    assert all(value <= bound for value, bound in zip(staleness, [0, 1, 2, 2, 0, 1, 2, 2], strict=True))
    assert max(staleness) > 0
    assert {step for step, record in steps.items() if "eval/return" in record} == {0, 4, 8}


def test_ctrl_c_saves_the_last_whole_step_and_a_resumed_run_ends(
    start_run: Callable[..., Any], train: Callable[..., Any], tmp_path: Path
) -> None:
    keys = (*TINY, "runner.val_check_interval=-1", f"runner.logger.log_path={tmp_path}")
    run = start_run(RECIPE, *keys, "runner.max_epochs=100000", entry=ASYNC_ENTRY)
    folder = tmp_path / RECIPE
    deadline = time.monotonic() + 120
    while not ((folder / "metrics.jsonl").exists() and len(read_metrics(folder)) >= 4):
        assert time.monotonic() < deadline, "the run did not make four steps"
        assert run.process.poll() is None, (run.wait(), run.output[-4000:])
        time.sleep(0.2)
    run.process.send_signal(signal.SIGINT)
    assert run.wait(timeout=30) == 130, run.output[-4000:]
    assert not run.survivors()
    saved = int((folder / "checkpoints" / "LATEST").read_text().strip().removeprefix("global_step_"))
    assert saved >= 3
    keys = (*keys, f"runner.max_epochs={saved + 3}", "runner.resume_dir=auto")
    again = read_metrics(train(RECIPE, *keys, log_path=tmp_path))
    # The step that was interrupted has its record too.
    assert [record["step"] for record in again] == list(range(again[0]["step"], saved + 4))
    assert again[-3]["rollout/staleness_max"] == 0


@pytest.mark.parametrize("decoupled", [False, True])
def test_several_ranks_of_each_kind_keep_to_the_bound_and_end(train: Callable[..., Any], decoupled: bool) -> None:
    keys = (*TINY, *ranks(env=2, rollout=2, actor=2), f"runner.enable_decoupled_mode={str(decoupled).lower()}")
    keys = (*keys, "runner.max_steps=7", "runner.val_check_interval=-1", "algorithm.staleness_threshold=2")
    found = read_metrics(train(RECIPE, *keys, "algorithm.update_epoch=10"))
    assert [record["step"] for record in found] == list(range(1, 8))
    # The oldest sample on any rank; rollouts 1 to 3 begin with the weights of step 0.
    oldest = [record["rollout/staleness_max"] for record in found]
    assert all(age <= min(step, 2) for step, age in enumerate(oldest))
    assert max(oldest) > 0


def test_several_ranks_learn_off_policy_from_replays_of_their_own(train: Callable[..., Any]) -> None:
    keys = (*ranks(env=2, rollout=2, actor=2), "runner.max_steps=8", "runner.val_check_interval=4")
    keys = (*keys, "algorithm.replay_buffer.min_buffer_size=128", "algorithm.update_epoch=16")
    keys = (*keys, "actor.micro_batch_size=128", "algorithm.staleness_threshold=2")
    found = [record for record in read_metrics(train("gym_pendulum_async_sac_mlp", *keys)) if record["step"] > 0]
    assert [record["step"] for record in found] == list(range(1, 9))
    oldest = [record["rollout/staleness_max"] for record in found]
    assert all(age <= min(step % 4, 2) for step, age in enumerate(oldest))
    # Both ranks' replays, and updates as soon as both are filled.
    assert found[-1]["train/replay_size"] == 8 * 64
    assert "train/critic_loss" in found[-1]
