"""Rewards of the tests of runs, named by their import path."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

from rlinf.data.messages.responses import RewardQuery

KILL_AT = 42
"""The answer at which the engine is killed: within the second step, while others are being generated."""
KILL_ACTOR_AT = 12
"""The answer at which the actor is killed, of eight in an evaluation."""


def short(query: RewardQuery) -> float:
    """Earn most with the shortest answer: a model that knows nothing has something to learn."""
    return 1.0 - len(query.response) / 10


def short_if_even(query: RewardQuery) -> float:
    """Tell answers apart only where the solution is even; the others all earn the same."""
    return 0.0 if int(query.reference) % 2 else short(query)


def kill_engine(query: RewardQuery) -> float:
    """Kill the run's first engine once; rows say in ``folder`` where the run is."""
    _kill(Path(query.metadata["folder"]), "RolloutGroup", at=KILL_AT)
    return short(query)


def kill_reward_rank(query: RewardQuery) -> float:
    """Kill the run's first reward rank once; rows say in ``folder`` where the run is."""
    _kill(Path(query.metadata["folder"]), "RewardGroup", at=KILL_AT)
    return short(query)


def kill_agent(query: RewardQuery) -> float:
    """Kill the run's first agent once; rows say in ``folder`` where the run is."""
    _kill(Path(query.metadata["folder"]), "AgentGroup", at=KILL_AT)
    return short(query)


def kill_actor(query: RewardQuery) -> float:
    """Kill the run's first actor once, in its second evaluation; rows say in ``folder`` where the run is."""
    _kill(Path(query.metadata["folder"]), "ActorGroup", at=KILL_ACTOR_AT)
    return short(query)


def _kill(folder: Path, group: str, *, at: int) -> None:
    counter = folder / "judged"
    with counter.open("ab", buffering=0) as file:  # its own place: several processes judge at once
        file.write(b".")
        place = file.tell()
    if place == at:
        log = (folder / "worker_logs" / f"{group}_0.log").read_text()
        os.kill(int(re.findall(r"Ready: process (\d+)", log)[-1]), signal.SIGKILL)
