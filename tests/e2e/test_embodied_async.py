"""Asynchronous runs: as synchronous ones where nothing may be stale, bounded where it may, and as robust."""

import signal
import time

import pytest

from tests.e2e.conftest import ASYNC_ENTRY, TINY, read_metrics

pytestmark = pytest.mark.timeout(300)


def records(run, folder):
    assert run.wait() == 0, run.output[-4000:]
    assert not run.survivors()
    return read_metrics(folder)


def test_threshold_zero_is_the_synchronous_algorithm_bit_for_bit(start_run, tmp_path):
    keys = (*TINY, "runner.max_epochs=4", "runner.save_interval=3")
    sync = start_run("gym_cartpole_ppo_mlp", *keys, f"runner.logger.log_path={tmp_path}")
    expected = records(sync, tmp_path / "gym_cartpole_ppo_mlp")
    keys = (
        *keys,
        "algorithm.staleness_threshold=0",
        "algorithm.loss_type=actor_critic",
        f"runner.logger.log_path={tmp_path}",
    )
    run = start_run("gym_cartpole_async_ppo_mlp", *keys, entry=ASYNC_ENTRY)
    received = records(run, tmp_path / "gym_cartpole_async_ppo_mlp")
    staleness = [(r.pop("rollout/staleness_mean", 0), r.pop("rollout/staleness_max", 0)) for r in received]
    assert staleness == [(0, 0)] * 5
    assert received == expected
    assert "train/actor_loss" in expected[-1]


def test_staleness_reaches_its_bound_and_no_more_and_segments_begin_fresh(start_run, tmp_path):
    # Training takes longer than a rollout: rollouts begin as early as they may.
    keys = (*TINY, "runner.max_epochs=8", "runner.val_check_interval=4", "algorithm.staleness_threshold=2")
    keys = (*keys, "algorithm.update_epoch=40", f"runner.logger.log_path={tmp_path}")
    run = start_run("gym_cartpole_async_ppo_mlp", *keys, entry=ASYNC_ENTRY)
    steps = {r["step"]: r for r in records(run, tmp_path / "gym_cartpole_async_ppo_mlp")}
    assert list(steps) == list(range(9))
    staleness = [steps[step]["rollout/staleness_max"] for step in range(1, 9)]
    # Evaluations after steps 4 and 8: the rollouts of steps 1-3 and 5-7 begin with the weights of steps 0 and 4.
    assert all(value <= bound for value, bound in zip(staleness, [0, 1, 2, 2, 0, 1, 2, 2], strict=True))
    assert max(staleness) > 0
    assert {step for step, record in steps.items() if "eval/return" in record} == {0, 4, 8}


def test_ctrl_c_saves_the_last_whole_step_and_a_resumed_run_ends(start_run, tmp_path):
    recipe = "gym_cartpole_async_ppo_mlp"
    keys = (*TINY, "runner.val_check_interval=-1", f"runner.logger.log_path={tmp_path}")
    run = start_run(recipe, *keys, "runner.max_epochs=100000", entry=ASYNC_ENTRY)
    folder = tmp_path / recipe
    deadline = time.monotonic() + 120
    while not ((folder / "metrics.jsonl").exists() and len(read_metrics(folder)) >= 4):
        assert time.monotonic() < deadline, "the run did not make four steps"
        assert run.process.poll() is None, run.wait()
        time.sleep(0.2)
    run.process.send_signal(signal.SIGINT)
    assert run.wait(timeout=30) == 130, run.output[-4000:]
    assert not run.survivors()
    saved = int((folder / "checkpoints" / "LATEST").read_text().strip().removeprefix("global_step_"))
    assert saved >= 3
    keys = (*keys, f"runner.max_epochs={saved + 3}", "runner.resume_dir=auto")
    again = records(start_run(recipe, *keys, entry=ASYNC_ENTRY), folder)
    # The step that was interrupted may be saved without a record.
    assert [record["step"] for record in again[-3:]] == [saved + 1, saved + 2, saved + 3]
    assert again[-3]["rollout/staleness_max"] == 0
