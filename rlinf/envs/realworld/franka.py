"""One Franka arm as a ``SingleEnv``, the same for a robot and for its stand-in; imports no torch."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from rlinf.config.schema.realworld import FrankaHardwareConfig, RealWorldEnvConfig
from rlinf.envs.raw_chunk import Frame
from rlinf.envs.realworld.cameras import image_row, image_spaces
from rlinf.envs.realworld.client import Connection, FrankaState, WallClock, connections, make_client
from rlinf.envs.realworld.dummy import DummyFranka
from rlinf.envs.realworld.operator_marks import OperatorMarks
from rlinf.envs.realworld.pace import Pace
from rlinf.envs.realworld.poses import (
    Vector,
    from_rotation_vector,
    limited,
    multiply,
    pose_from_euler,
    rotation_between,
)
from rlinf.envs.single_env import SingleStep
from rlinf.errors import EnvironmentFailure

STATE_SIZE = 19
"""Position [3] and rotation vector [3] relative to the target, velocity [6], gripper [1], force and torque [6]."""
_AT_REST_METERS_PER_SECOND = 0.005
_AT_REST_FINGERS = 0.01
"""Change of the gripper's opening, of 1, from one look to the next."""
_RESET_RADIANS = 0.05
_GRIPPER_THRESHOLD = 0.5
"""The last number of an action opens the fingers above it, and closes them below minus this."""
_VIDEO_SIZE = 256


class FrankaSingleEnv:
    """An arm that actions move by small steps, within limits that no action can leave.

    ``states`` is relative to the target's pose (or, without one, to the start's), so that robots whose tables stand
    differently show the same numbers.

    Args:
        cfg: The environment's configuration.
        robot: What the recipe says of this robot.
        is_declared: Whether the robot is one of the cluster's, which training and evaluation share.
        render: Whether it has to render images.
    """

    def __init__(
        self, *, cfg: RealWorldEnvConfig, robot: FrankaHardwareConfig, is_declared: bool, render: bool
    ) -> None:
        self.cfg, self.robot = cfg, robot
        self.start = pose_from_euler(robot.reset_ee_pose or cfg.reset_ee_pose)
        target = robot.target_ee_pose or cfg.target_ee_pose
        self.target = None if target is None else pose_from_euler(target)
        self.num_cameras = 0 if cfg.image_size is None else len(robot.camera_serials)
        self._address = robot.robot_ip if is_declared else None
        self._marks = OperatorMarks(cfg)
        self._num_drawn = max(self.num_cameras, int(render and cfg.is_dummy))
        self._connection = self._connect() if self._address is None else connections.take(self._address, self._connect)
        self._client, self._clock = self._connection.client, self._connection.clock
        self._pace = Pace(self._clock, frequency_hz=cfg.control_frequency_hz, robot=robot.robot_ip)
        self.action_space: gymnasium.Space[Any] = gymnasium.spaces.Box(-1.0, 1.0, (cfg.num_actions,), np.float32)
        self.observation_space = self._make_space()

    def reset(self, seed: int) -> FrankaState:
        """Open the gripper, go up, and then to a start that ``seed`` selects."""
        generator = np.random.default_rng(seed)
        shift = generator.uniform(-1.0, 1.0, 2) * self.cfg.random_xy_meters
        yaw = float(generator.uniform(-1.0, 1.0)) * self.cfg.random_yaw_radians
        goal = self.start.copy()
        goal[:2] += shift
        goal[3:] = multiply(from_rotation_vector(np.array([0.0, 0.0, yaw])), goal[3:])
        goal = self._safe(goal)
        self._client.reset()
        self._client.set_gripper(1.0)
        # Straight up first: what is next to the gripper stays where it is.
        lift = self._client.state().pose
        lift[2] = max(lift[2], goal[2])
        self._travel(lift)
        state = self._travel(goal)
        self._pace.begin()
        self._marks.begin()
        return state

    def step(self, action: Any) -> SingleStep:
        """Move by one step, and wait until the next one is due."""
        goal, opening = self._aim(self._client.state().pose, np.asarray(action, np.float64))
        self._client.move_to(goal)
        if opening is not None:
            self._client.set_gripper(opening)
        self._pace.wait()
        state = self._client.state()
        limit = self.cfg.max_force_newtons
        is_blocked = limit is not None and float(np.linalg.norm(state.wrench[:3])) > limit
        if is_blocked:
            self._client.move_to(state.pose)
        success, reward, is_over = self._marks.judge(*self._judge(state.pose))
        return state, reward, is_over, is_blocked and not is_over, success

    def observe(self, raw: FrankaState) -> dict[str, Any]:
        """Return ``states``, the task, and with cameras ``main_images`` and ``extra_view_images`` [N, H, W, 3]."""
        origin = self.start if self.target is None else self.target
        relative = np.concatenate([raw.pose[:3] - origin[:3], rotation_between(origin[3:], raw.pose[3:])])
        states = np.concatenate([relative, raw.velocity, [raw.gripper], raw.wrench]).astype(np.float32)
        row: dict[str, Any] = {"states": states, "task_descriptions": self.cfg.task_description}
        if not self.num_cameras or self.cfg.image_size is None:
            return row
        frames, size = self._client.frames(), self.cfg.image_size
        return {**row, **image_row(frames, num_cameras=self.num_cameras, size=size, robot=self.robot.robot_ip)}

    def render(self) -> Frame | None:
        """Return the first camera's image, enlarged for videos; None without cameras."""
        if not self._num_drawn:
            return None
        frame = self._client.frames()[0]
        scale = max(_VIDEO_SIZE // frame.shape[0], 1)
        return frame.repeat(scale, axis=0).repeat(scale, axis=1)

    def close(self) -> None:
        """Let the robot go."""
        self._marks.close()
        if self._address is None:
            self._client.close()
        else:
            connections.release(self._address)

    def _connect(self) -> Connection:
        robot, size = self.robot, self.cfg.image_size or _VIDEO_SIZE
        if not self.cfg.is_dummy:
            assert self.cfg.client is not None  # the vector environment has said so
            described = {"robot_ip": robot.robot_ip, "camera_serials": list(robot.camera_serials), "image_size": size}
            return Connection(make_client(self.cfg.client, self.cfg.client_params, **described), WallClock())
        dummy = DummyFranka(
            self.cfg.dummy,
            start=self.start,
            target=self.start if self.target is None else self.target,
            num_cameras=self._num_drawn,
            image_size=size,
        )
        return Connection(dummy, dummy)

    def _aim(self, pose: Vector, action: Vector) -> tuple[Vector, float | None]:
        """Return where an action sends the arm from ``pose``, and the fingers (None where it does not)."""
        action = np.clip(action, -1.0, 1.0)
        goal = pose.copy()
        goal[:3] += limited(action[:3] * self.cfg.max_step_meters, self.cfg.max_step_meters)
        if self.cfg.fixed_rotation:
            goal[3:] = self.start[3:]
        else:
            turn = limited(action[3:6] * self.cfg.max_step_radians, self.cfg.max_step_radians)
            goal[3:] = multiply(from_rotation_vector(turn), pose[3:])
        # In between nothing happens: noise would open and close the fingers at every step.
        moves = not self.cfg.no_gripper and abs(action[-1]) > _GRIPPER_THRESHOLD
        return self._safe(goal), float(action[-1] > 0) if moves else None

    def _safe(self, pose: Vector) -> Vector:
        """Return the pose, moved and turned to within the limits."""
        position = np.clip(pose[:3], self.cfg.workspace_low, self.cfg.workspace_high)
        tilt = limited(rotation_between(self.start[3:], pose[3:]), self.cfg.max_tilt_radians)
        return np.concatenate([position, multiply(from_rotation_vector(tilt), self.start[3:])])

    def _travel(self, goal: Vector) -> FrankaState:
        """Go to a pose and come to rest there."""
        began, period = self._clock.now(), 1.0 / self.cfg.control_frequency_hz
        fingers = self._client.state().gripper
        while True:
            self._client.move_to(goal)
            self._clock.sleep(period)
            state = self._client.state()
            rests = np.linalg.norm(state.velocity[:3]) < _AT_REST_METERS_PER_SECOND
            rests &= abs(state.gripper - fingers) < _AT_REST_FINGERS
            fingers = state.gripper
            distance = float(np.linalg.norm(state.pose[:3] - goal[:3]))
            angle = float(np.linalg.norm(rotation_between(state.pose[3:], goal[3:])))
            if rests and distance < self.cfg.reset_tolerance_meters and angle < _RESET_RADIANS:
                self._clock.sleep(period)  # what is left of the motion dies away
                return self._client.state()
            if self._clock.now() - began > self.cfg.reset_timeout_seconds:
                raise EnvironmentFailure(
                    f"the robot {self.robot.robot_ip} did not reach its start within env.*.reset_timeout_seconds="
                    f"{self.cfg.reset_timeout_seconds}: it is {distance:.3f} m and {angle:.2f} rad away. Free its way, "
                    "or raise env.*.reset_tolerance_meters or the time."
                )

    def _judge(self, pose: Vector) -> tuple[bool, float]:
        """Return success and reward."""
        if self.target is None:
            return False, 0.0
        distance = float(np.linalg.norm(pose[:3] - self.target[:3]))
        angle = float(np.linalg.norm(rotation_between(pose[3:], self.target[3:])))
        success = distance < self.cfg.success_meters and angle < self.cfg.success_radians
        return success, float(success) - (distance if self.cfg.use_dense_reward else 0.0)

    def _make_space(self) -> gymnasium.spaces.Dict:
        spaces: dict[str, gymnasium.Space[Any]] = {
            "states": gymnasium.spaces.Box(-np.inf, np.inf, (STATE_SIZE,), np.float32),
            "task_descriptions": gymnasium.spaces.Text(max(len(self.cfg.task_description), 1)),
        }
        return gymnasium.spaces.Dict({**spaces, **image_spaces(self.num_cameras, self.cfg.image_size)})
