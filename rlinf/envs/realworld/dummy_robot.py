"""A stand-in for ``env_type: robot``: joints that actions push towards a target; imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlinf.envs.raw_chunk import Frame
from rlinf.envs.realworld.poses import Vector

_STEP, _SOLVED = 0.1, 0.1


class DummyRobot:
    """Client and clock in one: an action moves as many joints, each by a tenth of its number, and they start at random.

    The task is to bring all of them to 0. The rest of the state is 0.

    Args:
        robot: Not used.
        state_dim: ``S``.
        action_dim: ``A``, at most ``S`` joints are seen.
        num_cameras: Images that it shows: how far the joints are from 0, as grey.
        image_size: Their height and width in pixels.
    """

    def __init__(
        self, *, robot: Mapping[str, Any], state_dim: int, action_dim: int, num_cameras: int, image_size: int | None
    ) -> None:
        del robot
        self.state_dim, self.num_cameras, self.image_size = state_dim, num_cameras, image_size
        self.joints = np.zeros(action_dim)
        self.time = 0.0

    def reset(self, seed: int) -> None:
        """See ``RobotClient``."""
        self.joints = np.random.default_rng(seed).uniform(-1.0, 1.0, len(self.joints))

    def state(self) -> Vector:
        """See ``RobotClient``."""
        seen = self.joints[: self.state_dim]
        return np.concatenate([seen, np.zeros(self.state_dim - len(seen))])

    def act(self, action: Vector) -> None:
        """See ``RobotClient``."""
        self.joints = np.clip(self.joints + _STEP * action, -1.0, 1.0)

    def judge(self) -> tuple[bool, float]:
        """See ``RobotClient``: the reward is minus the largest distance of a joint."""
        distance = float(np.abs(self.joints).max())
        return distance < _SOLVED, -distance

    def frames(self) -> list[Frame]:
        """See ``RobotClient``."""
        size = self.image_size or 1
        grey = round(255 * float(np.abs(self.joints).mean()))
        return [np.full((size, size, 3), grey, np.uint8) for _ in range(self.num_cameras)]

    def operator_action(self) -> Vector | None:
        """See ``RobotClient``: an operator who brings the joints to 0."""
        return np.clip(-self.joints / _STEP, -1.0, 1.0)

    def close(self) -> None:
        """See ``RobotClient``: nothing is held."""

    def now(self) -> float:
        """See ``Clock``."""
        return self.time

    def sleep(self, seconds: float) -> None:
        """See ``Clock``."""
        self.time += seconds
