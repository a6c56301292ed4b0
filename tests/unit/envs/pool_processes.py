"""Specifications of toy environments, and whether a process lives."""

import time
from pathlib import Path
from typing import Any

import toy_envs

from rlinf.envs.single_env import SingleEnvSpec


def spec(**kwargs: Any) -> SingleEnvSpec:
    return SingleEnvSpec(env_type="toy", factory=toy_envs.make_counting_env, kwargs=kwargs, num_envs=3)


def is_alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # the second if it goes while its file is read
        return False
    return status.rsplit(")", 1)[1].split()[0] != "Z"


def wait_until_gone(pid: int) -> None:
    for _ in range(200):
        if not is_alive(pid):
            return
        time.sleep(0.05)
    raise AssertionError(f"process {pid} is still alive")
