"""The intervener ``gello``: a person moves a leader arm of a Franka's joints, and the robot's gripper follows.

After GELLO (Wu et al., 2023), whose calibration it takes: a joint's angle is its sign times (the servo's angle minus
its offset).
"""

from __future__ import annotations

import math

import numpy as np
import torch

from rlinf.config.schema.env import EnvConfig
from rlinf.config.schema.intervention import GelloIntervenerConfig
from rlinf.config.schema.realworld import RealWorldEnvConfig
from rlinf.envs.interveners import Situation
from rlinf.envs.interveners.person import require_one_environment, twist_to_action
from rlinf.envs.realworld.dynamixel_bus import DynamixelBus
from rlinf.envs.realworld.poses import Vector, from_rotation_vector, multiply, rotation_between
from rlinf.errors import ConfigError

_STATE_SIZE = 19
"""Numbers of ``states`` of ``env_type: realworld``; position and rotation vector come first."""
_STILL_RADIANS = 0.005
"""Change of a joint from one action to the next below which it is still: three steps of a servo."""
_QUARTER = math.pi / 2
_FRANKA_LINKS = (
    (0.0, 0.0, 0.333),
    (0.0, -_QUARTER, 0.0),
    (0.0, _QUARTER, 0.316),
    (0.0825, _QUARTER, 0.0),
    (-0.0825, -_QUARTER, 0.384),
    (0.0, _QUARTER, 0.0),
    (0.088, _QUARTER, 0.0),
)
"""Of each joint, as its maker publishes them (Craig's convention): ``a`` in metres, ``alpha`` in radians, ``d``."""
_FLANGE_METERS = 0.107


class GelloIntervener:
    """Acts from when the leader arm is moved until it has been still for a while.

    While it acts, the robot's end effector makes the motion that the leader arm has made since it took over, starting
    from where it then was: the two need not stand alike.

    Args:
        cfg: Its keys.
        env: The environment's configuration.
        row: Which of the environments of its worker it drives; only the first can be.

    Raises:
        ConfigError: The worker holds several environments, or they are no Franka arms.
        EnvironmentFailure: The leader arm does not answer.
        MissingPackageError: dynamixel-sdk is not installed.
    """

    def __init__(self, cfg: GelloIntervenerConfig, *, env: EnvConfig, row: int) -> None:
        require_one_environment(row, cfg.intervener_type)
        if not isinstance(env, RealWorldEnvConfig):
            raise ConfigError(
                f"env.*.wrappers: intervention: intervener_type=gello moves env_type=realworld; received "
                f"{env.env_type}. Choose another intervener."
            )
        self.cfg, self.env = cfg, env
        gripper = [] if cfg.gripper_id is None else [cfg.gripper_id]
        self._bus = DynamixelBus(cfg.port, baudrate=cfg.baudrate, ids=[*cfg.joint_ids, *gripper])
        self.begin()

    def begin(self) -> None:
        """See ``Intervener``: an episode begins with the policy."""
        self._before = self._rest = self._bus.positions()
        self._num_still = 0
        self._leader_start: Vector | None = None
        self._robot_start = np.zeros(7)

    def act(self, situation: Situation) -> torch.Tensor | None:
        """See ``Intervener``.

        Raises:
            EnvironmentFailure: The leader arm does not answer any more.
        """
        angles = self._bus.positions()
        robot = _pose_of(situation)
        leader = forward_kinematics(self._joints(angles))
        is_still = float(np.abs(angles - self._before).max()) < _STILL_RADIANS
        self._before = angles
        self._num_still = self._num_still + 1 if is_still else 0
        if self._leader_start is None:
            if float(np.abs(angles - self._rest).max()) < self.cfg.takeover_radians:
                return None
            self._leader_start, self._robot_start = leader, robot
        elif self._num_still >= self.cfg.release_steps:
            self._leader_start, self._rest = None, angles
            return None
        return self._follow(leader, robot, self._opening(angles), len(situation.action))

    def close(self) -> None:
        """See ``Intervener``: free the port."""
        self._bus.close()

    def _follow(self, leader: Vector, robot: Vector, opening: float, action_dim: int) -> torch.Tensor:
        """Return the action from where the robot is towards where the leader arm wants it, float32 [A]."""
        assert self._leader_start is not None
        way = self._robot_start[:3] + leader[:3] - self._leader_start[:3] - robot[:3]
        turned = from_rotation_vector(rotation_between(self._leader_start[3:], leader[3:]))
        turn = rotation_between(robot[3:], multiply(turned, self._robot_start[3:]))
        motion = [*(way / self.env.max_step_meters).tolist(), *(turn / self.env.max_step_radians).tolist()]
        if self.env.fixed_rotation:
            motion = motion[:3]
        return twist_to_action(motion, opening, action_dim, cfg=self.cfg, env=self.env)

    def _joints(self, angles: Vector) -> Vector:
        count = len(self.cfg.joint_ids)
        joints: Vector = np.array(self.cfg.joint_signs) * (angles[:count] - np.array(self.cfg.joint_offsets))
        return joints

    def _opening(self, angles: Vector) -> float:
        """Return -1 where the trigger is pulled by more than half, else 1."""
        if self.cfg.gripper_id is None:
            return 1.0
        degrees = math.degrees(float(angles[-1]))
        pulled = (degrees - self.cfg.gripper_open_degrees) / (
            self.cfg.gripper_closed_degrees - self.cfg.gripper_open_degrees
        )
        return -1.0 if pulled > 0.5 else 1.0


def forward_kinematics(joints: Vector) -> Vector:
    """Return the pose of a Franka's flange in its base's frame, float64 [7].

    Args:
        joints: Angles of its seven joints, radians [7].
    """
    frame = np.eye(4)
    for angle, (a, alpha, d) in zip(joints, _FRANKA_LINKS, strict=True):
        c, s, ca, sa = math.cos(angle), math.sin(angle), math.cos(alpha), math.sin(alpha)
        frame = frame @ np.array(
            [[c, -s, 0.0, a], [s * ca, c * ca, -sa, -d * sa], [s * sa, c * sa, ca, d * ca], [0.0, 0.0, 0.0, 1.0]]
        )
    position = frame[:3, 3] + _FLANGE_METERS * frame[:3, 2]
    quaternion = np.array([0.0, 0.0, 0.0, 1.0])
    turns = [np.array([0.0, 0.0, float(angle)]) for angle in joints]
    for turn, (_, alpha, _) in zip(turns, _FRANKA_LINKS, strict=True):
        quaternion = multiply(quaternion, from_rotation_vector(np.array([alpha, 0.0, 0.0])))
        quaternion = multiply(quaternion, from_rotation_vector(turn))
    return np.concatenate([position, quaternion])


def _pose_of(situation: Situation) -> Vector:
    """Return where the robot is, relative to what its ``states`` are relative to; of stacked ones the newest."""
    states = situation.obs["states"][0, -_STATE_SIZE:].double().numpy()
    return np.concatenate([states[:3], from_rotation_vector(states[3:6])])
