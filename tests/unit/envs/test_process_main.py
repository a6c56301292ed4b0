"""Processes of the pool end with the run, and load little."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import toy_envs
from batch_env import make_config, make_single
from pool_processes import is_alive, wait_until_gone


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
        "import sys; import rlinf.envs.process_main, rlinf.envs.single_env, rlinf.envs.simulators.gymnasium_single, "
        "rlinf.envs.simulators.metaworld.metaworld_single; "
        "print([name for name in ('torch', 'ray', 'pydantic', 'metaworld') if name in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert result.stdout.strip() == "[]"
