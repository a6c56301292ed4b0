"""What tests of adapters share: the fakes of simulators, chunks of actions, and a guest that has an adapter."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlinf.config.schema.env import GuestEnvConfig
from rlinf.envs import make_vector_env
from rlinf.envs.conformance import check_vector_env
from rlinf.envs.guests import guest_server
from rlinf.envs.guests.rows import GuestRows

FAKES = Path(__file__).parent / "fakes"


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Have the fakes imported as the simulators; nothing of them is left behind."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(FAKES))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(Path.cwd())
    monkeypatch.setattr(sys, "argv", ["guest", "7", "8"])
    yield FAKES
    for name in set(sys.modules) - before:
        if str(FAKES) in str(getattr(sys.modules[name], "__file__", None)):
            del sys.modules[name]


def build(adapter: str, init_params: dict[str, Any], *, num_envs: int = 1, num_recorded: int = 0) -> GuestRows:
    """Build environments in this process, as a guest does."""
    return guest_server.build_rows(
        {
            "adapter": adapter,
            "num_envs": num_envs,
            "first_env": 0,
            "num_recorded": num_recorded,
            "episode": {"group_size": 1, "max_episode_steps": 50},
            "init_params": init_params,
        }
    )


def reset(rows: GuestRows, *seeds: int) -> dict[str, Any]:
    """Start an episode in each environment, and return the observation."""
    return rows.reset(np.arange(len(seeds)), np.array(seeds))["obs"]


def run(rows: GuestRows, actions: Any, **changes: Any) -> dict[str, Any]:
    """Execute a chunk of actions [B, C, A] in all environments."""
    actions = np.asarray(actions, np.float32)
    request = {
        "actions": actions,
        "active": np.ones(len(actions), np.bool_),
        "steps": np.zeros(len(actions), np.int64),
        "next_seeds": None,
        "rule": [50, False],
        "observes": True,
    }
    return rows.run_chunk({**request, **changes})


def check_in_guest(adapter: str, init_params: dict[str, Any], *, varied: bool = True, **changes: Any) -> None:
    """Check the rules of environments with an adapter in guests, which have the fakes."""
    section: dict[str, Any] = {
        "env_type": "guest",
        "adapter": adapter,
        "python": sys.executable,
        "env_vars": {"PYTHONPATH": str(FAKES)},
        "init_params": init_params,
        "total_num_envs": 2,
        "max_episode_steps": 5,
        "max_steps_per_rollout_epoch": 10,
    }
    cfg = GuestEnvConfig(**{**section, **changes})
    with make_vector_env(cfg, num_envs=2) as env:
        check_vector_env(env, varied_resets=varied)


def fake(name: str) -> Any:
    """Return a module of the fakes."""
    return importlib.import_module(name)
