"""Learners of TD3, CrossQ and RLPD."""

from pathlib import Path

import pytest
from off_policy_toys import make_trajectory

from rlinf.data.replay.buffer import ReplayBuffer, Transitions


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demos") / "demos"
    replay = ReplayBuffer(1000)
    trajectory = make_trajectory(99)
    trajectory.rewards[:] = 50.0
    replay.add(Transitions.from_trajectory(trajectory, gamma=0.0))
    replay.save(path)
    return path
