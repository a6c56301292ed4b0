"""The pool steps as the calling process would, tells of every failure, and leaves no process behind."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import toy_envs
from batch_env import make_config, make_single

from rlinf.envs.process_pool import ProcessPool
from rlinf.envs.single_env import SingleEnvSpec
from rlinf.errors import EnvironmentFailure


def spec(**kwargs: Any) -> SingleEnvSpec:
    return SingleEnvSpec(env_type="toy", factory=toy_envs.make_counting_env, kwargs=kwargs, num_envs=3)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat").read_text()
    return status.rsplit(")", 1)[1].split()[0] != "Z"


def wait_until_gone(pid: int) -> None:
    for _ in range(200):
        if not is_alive(pid):
            return
        time.sleep(0.05)
    raise AssertionError(f"process {pid} is still alive")


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


def test_processes_ignore_interrupts_and_end_with_close() -> None:
    env = make_single(make_config(num_env_processes=2), num_envs=2)
    env.reset(0)
    assert env._pool is not None
    pids = [child.process.pid for child in env._pool._children]
    for pid in pids:
        os.kill(pid, signal.SIGINT)
    assert env.chunk_step(torch.zeros(2, 1, 1)).executed.all()
    env.close()
    for pid in pids:
        wait_until_gone(pid)


_PARENT = """
import sys, threading
sys.path[:0] = {path!r}
import numpy as np
import toy_envs
from rlinf.envs.process_pool import ProcessPool
from rlinf.envs.raw_chunk import ChunkRequest, EpisodeRule
from rlinf.envs.single_env import SingleEnvSpec
pools = []
spec = SingleEnvSpec(env_type="toy", factory=toy_envs.make_counting_env, kwargs=dict(hang_at={hang_at}), num_envs=2)
maker = threading.Thread(target=lambda: pools.append(ProcessPool(spec, 2)))
maker.start(); maker.join()
pool = pools[0]
pool.reset(np.arange(2), np.arange(2))
one, zero = np.ones(2, bool), np.zeros(2, np.int64)
pool.send_chunk(ChunkRequest(np.zeros((2, 1, 1), np.float32), one, zero, None, EpisodeRule(9, True)))
print(*[child.process.pid for child in pool._children], flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("hang_at", [1, -1], ids=["in a step", "idle"])
def test_processes_end_with_a_parent_that_is_killed(hang_at: int) -> None:
    code = _PARENT.format(path=[str(Path(toy_envs.__file__).parent), *filter(None, sys.path)], hang_at=hang_at)
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert len(pids) == 2
    assert all(is_alive(pid) for pid in pids)  # the thread that started them has long ended
    parent.kill()
    parent.communicate()
    for pid in pids:
        wait_until_gone(pid)


def test_processes_load_neither_torch_nor_ray() -> None:
    code = (
        "import sys; import rlinf.envs.process_main, rlinf.envs.single_env, rlinf.envs.gymnasium_single, "
        "rlinf.envs.metaworld_single; print([name for name in ('torch', 'ray', 'pydantic', 'metaworld') "
        "if name in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert result.stdout.strip() == "[]"
