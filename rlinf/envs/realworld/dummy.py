"""A stand-in of a Franka arm: follows commands, no faster than an arm can, on a clock of its own."""

from __future__ import annotations

import numpy as np

from rlinf.config.schema.realworld import DummyFrankaConfig
from rlinf.envs.raw_chunk import Frame
from rlinf.envs.realworld.client import FrankaState
from rlinf.envs.realworld.poses import Vector, from_rotation_vector, limited, multiply, rotation_between

_TICK_SECONDS = 0.01
_STIFFNESS = 1000.0
"""Newtons per metre by which the arm presses against what is in its way."""
_FINGERS_PER_SECOND = 2.0
_VIEW_METERS = 0.35
"""Half the width of what the fixed cameras see; the wrist cameras see a third of it."""
_TARGET_METERS, _GRIPPER_METERS = 0.03, 0.02
_GROUND, _TARGET, _GRIPPER = (np.array(colour, np.uint8) for colour in ([120] * 3, [40, 200, 60], [235, 60, 50]))
# What each camera's image shows to the right and upwards, and whether it follows the gripper.
_VIEWS = (((0, 1), False), ((0, 2), False), ((0, 1), True))


class DummyFranka:
    """Client and clock in one: the arm moves while ``sleep`` lets time pass.

    In the scene ``peg`` a block is around the target, with a hole from above; the arm slides along what it touches.

    Args:
        cfg: ``env.*.dummy``.
        start: float64 [7]; where it is at first.
        target: float64 [7]; what cameras show as the target.
        num_cameras: From above, from the side, and then from the wrist.
        image_size: Height and width of their images.
    """

    def __init__(
        self, cfg: DummyFrankaConfig, *, start: Vector, target: Vector, num_cameras: int, image_size: int
    ) -> None:
        self.cfg = cfg
        self.target = target
        self.views = [_VIEWS[min(number, len(_VIEWS) - 1)] for number in range(num_cameras)]
        self.image_size = image_size
        self.time = 0.0
        self.pose, self.goal = start.copy(), start.copy()
        self.velocity, self.force = np.zeros(6), np.zeros(3)
        self.gripper = self.gripper_goal = 1.0

    def state(self) -> FrankaState:
        """See ``FrankaClient``."""
        wrench = np.concatenate([self.force, np.zeros(3)])
        return FrankaState(self.pose.copy(), self.velocity.copy(), wrench, self.gripper)

    def move_to(self, pose: Vector) -> None:
        """See ``FrankaClient``."""
        self.goal = pose.copy()

    def set_gripper(self, opening: float) -> None:
        """See ``FrankaClient``."""
        self.gripper_goal = opening

    def frames(self) -> list[Frame]:
        """See ``FrankaClient``."""
        return [self._draw(axes, follows) for axes, follows in self.views]

    def reset(self) -> None:
        """See ``FrankaClient``: the arm stays where it is."""
        self.goal = self.pose.copy()

    def close(self) -> None:
        """See ``FrankaClient``: nothing is held."""

    def now(self) -> float:
        """See ``Clock``."""
        return self.time

    def sleep(self, seconds: float) -> None:
        """See ``Clock``; time passes in ticks of 10 ms."""
        ticks = max(round(seconds / _TICK_SECONDS), 1)
        before = self.pose.copy()
        for _ in range(ticks):
            self._tick()
        self.time += ticks * _TICK_SECONDS
        moved = np.concatenate([self.pose[:3] - before[:3], rotation_between(before[3:], self.pose[3:])])
        self.velocity = moved / (ticks * _TICK_SECONDS)

    def _tick(self) -> None:
        way = self.goal[:3] - self.pose[:3]
        reach = self.cfg.max_speed_meters_per_second * _TICK_SECONDS
        # The goal itself, not a sum that rounds: where the arm rests does not depend on how it got there.
        wanted = self.goal[:3] if np.linalg.norm(way) <= reach else self.pose[:3] + limited(way, reach)
        self.pose[:3] = self._kept_out(wanted)
        # Only what is in the way is pressed against, as far as the arm wants to go.
        self.force = np.where(self.pose[:3] == wanted, 0.0, _STIFFNESS * (self.pose[:3] - self.goal[:3]))
        turn = rotation_between(self.pose[3:], self.goal[3:])
        reach = self.cfg.max_turn_radians_per_second * _TICK_SECONDS
        arrives = np.linalg.norm(turn) <= reach
        self.pose[3:] = (
            self.goal[3:] if arrives else multiply(from_rotation_vector(limited(turn, reach)), self.pose[3:])
        )
        reach = _FINGERS_PER_SECOND * _TICK_SECONDS
        way = self.gripper_goal - self.gripper
        self.gripper = self.gripper_goal if abs(way) <= reach else self.gripper + float(np.sign(way)) * reach

    def _kept_out(self, position: Vector) -> Vector:
        """Return where the gripper gets to when it wants to ``position``."""
        top = self.target[2] + self.cfg.hole_depth_meters
        if self.cfg.scene == "free" or position[2] >= top:
            return position
        offset, clearance = position[:2] - self.target[:2], self.cfg.hole_clearance_meters
        if np.linalg.norm(offset) <= clearance:
            return np.array([*position[:2], max(position[2], self.target[2])])
        if self.pose[2] >= top:
            return np.array([*position[:2], top])
        return np.array([*(self.target[:2] + limited(offset, clearance)), max(position[2], self.target[2])])

    def _draw(self, axes: tuple[int, int], follows: bool) -> Frame:
        """Return an image: the target, and the gripper over it, the larger the higher or nearer."""
        size = self.image_size
        extent = _VIEW_METERS / 3 if follows else _VIEW_METERS
        centre = self.pose if follows else self.target
        ticks = extent * ((np.arange(size) + 0.5) * (2.0 / size) - 1.0)
        right, up = ticks + centre[axes[0]], ticks[::-1] + centre[axes[1]]
        image: Frame = np.broadcast_to(_GROUND, (size, size, 3)).copy()
        height = float(np.clip(self.pose[2] - self.target[2], 0.0, _VIEW_METERS))
        for place, radius, colour in (
            (self.target, _TARGET_METERS, _TARGET),
            (self.pose, _GRIPPER_METERS * (1.0 + 2.0 * height), _GRIPPER),
        ):
            squares = (right - place[axes[0]])[None, :] ** 2 + (up - place[axes[1]])[:, None] ** 2
            image[squares < radius**2] = colour
        return image
