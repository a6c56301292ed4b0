"""The pool steps as the calling process would, tells of every failure, and leaves no process behind."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import toy_envs
from batch_env import make_config, make_single
from pool_processes import spec, wait_until_gone

from rlinf.envs.process_pool import ProcessPool
from rlinf.envs.single_env import SingleEnvSpec
from rlinf.errors import EnvironmentFailure


def test_processes_report_what_the_calling_process_would() -> None:
    def run(num_processes: int) -> list[Any]:
        cfg = make_config(total_num_envs=5, group_size=2, num_env_processes=num_processes)
        generator = torch.Generator().manual_seed(0)
        seen: list[Any] = []
        with make_single(cfg, num_envs=5) as env:
            seen.append(env.reset(3)["states"].tolist())
            for _ in range(6):
                step = env.chunk_step(torch.randn(5, 4, 1, generator=generator))
                seen += [step.obs["states"].tolist(), step.rewards.tolist(), step.executed.tolist(), step.episodes]
                if step.final_ids is not None and step.final_obs is not None:
                    seen += [step.final_ids.tolist(), step.final_obs["states"].tolist()]
        return seen

    expected = run(0)
    assert run(2) == expected
    assert run(8) == expected


def test_a_chunk_in_flight_may_be_abandoned_by_a_reset() -> None:
    with make_single(make_config(num_env_processes=2), num_envs=4) as env:
        expected = env.reset(1)["states"]
        env.start_chunk_step(torch.zeros(4, 2, 1))
        with pytest.raises(EnvironmentFailure, match="previous chunk"):
            env.start_chunk_step(torch.zeros(4, 2, 1))
        assert torch.equal(env.reset(1)["states"], expected)
        assert env.chunk_step(torch.zeros(4, 1, 1)).rewards.tolist() == [[1.0]] * 4


def test_a_partial_reset_reaches_the_right_rows() -> None:
    with make_single(make_config(num_env_processes=2), num_envs=4) as env:
        env.reset(0)
        rows = torch.tensor([1, 3]).numpy()
        obs = env.reset_idx(rows, torch.tensor([7, 9]).numpy())
        after = env.step(torch.zeros(4, 1).numpy(), torch.ones(4, dtype=torch.bool).numpy()).obs
    assert obs["states"].tolist() == [[7, 0], [9, 0]]
    assert after["states"][1].tolist() == [7, 1]
    assert after["states"][3].tolist() == [9, 1]


def test_images_of_a_reset_are_those_of_their_rows() -> None:
    pool = ProcessPool(replace(spec(), num_envs=4, num_recorded=4), 2)
    try:
        reset = pool.reset(np.array([0, 2, 3]), np.array([5, 6, 7]))
    finally:
        pool.close()
    assert sorted(reset.frames) == [0, 2, 3]
    assert reset.obs["states"][:, 0].tolist() == [5, 6, 7]


def test_an_environment_that_raises_is_named_with_its_step_and_traceback() -> None:
    cfg = make_config(num_env_processes=2, max_episode_steps=50, ignore_terminations=True)
    env = make_single(cfg, num_envs=2, first_env=1, fail_at=37)
    env.reset(0)
    for _ in range(7):
        env.chunk_step(torch.zeros(2, 5, 1))
    with pytest.raises(EnvironmentFailure, match="the joint exploded") as info:
        env.chunk_step(torch.zeros(2, 5, 1))
    message = str(info.value)
    assert re.search(r"Environment [12] \(env_type=toy\) raised ValueError at step 37 of its episode", message)
    assert "toy_envs.py" in message
    with pytest.raises(EnvironmentFailure, match="closed"):
        env.reset(1)
    env.close()


def test_a_process_that_dies_fails_the_call_at_once() -> None:
    env = make_single(make_config(num_env_processes=2), num_envs=4, crash_at=2)
    env.reset(0)
    with pytest.raises(EnvironmentFailure, match="exit code 3"):
        env.chunk_step(torch.zeros(4, 2, 1))
    env.close()


def test_a_process_killed_between_chunks_fails_the_next_one() -> None:
    env = make_single(make_config(num_env_processes=1), num_envs=1)
    env.reset(0)
    assert env._pool is not None
    process = env._pool._children[0].process
    process.kill()
    process.wait()
    with pytest.raises(EnvironmentFailure, match="signal 9"):
        env.chunk_step(torch.zeros(1, 2, 1))
    env.close()


def test_a_stuck_simulator_is_an_error_and_its_process_is_ended() -> None:
    pool = ProcessPool(spec(hang_at=1), 1, timeout_seconds=20)
    pids = [child.process.pid for child in pool._children]
    pool._timeout_seconds = 0.2
    with make_single(make_config(total_num_envs=3), num_envs=3) as env:
        env.reset(0)
        env._pool = pool
        with pytest.raises(EnvironmentFailure, match="stuck"):
            env.chunk_step(torch.zeros(3, 1, 1))
    for pid in pids:
        wait_until_gone(pid)


def test_an_environment_that_cannot_be_built_raises_at_construction() -> None:
    broken = SingleEnvSpec(env_type="toy", factory=toy_envs.make_broken_env, num_envs=2)
    with pytest.raises(EnvironmentFailure, match="while it was built: no such robot"):
        ProcessPool(broken, 2)
