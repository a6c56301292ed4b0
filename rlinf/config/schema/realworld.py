"""Robots: what ``cluster.node_groups[].hardware.configs`` says of each, and the environment that they act in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from rlinf.config.schema.base import (
    ConfigSection,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)
from rlinf.config.schema.env import EnvConfig, envs
from rlinf.registry import Registry


@dataclass(frozen=True, kw_only=True)
class FrankaHardwareConfig(ConfigSection):
    """An entry of ``hardware.configs`` with ``type: Franka``: one arm and its cameras."""

    node_rank: NonNegativeInt
    """Cluster rank of the node that is connected to it."""
    robot_ip: str
    """Address of the robot; with the client ``FrankaServerClient``, of the server that drives it: HOST or HOST:PORT."""
    camera_serials: list[str] = field(default_factory=list)
    """Serial numbers of its cameras, or further names that the client knows, such as ``opencv:/dev/video2``; the first
    one is ``main_images``."""
    target_ee_pose: list[float] | None = None
    """Where its table has another place: ``target_ee_pose`` of this robot; null is the environment's."""
    reset_ee_pose: list[float] | None = None
    """The same of ``reset_ee_pose``."""


@dataclass(frozen=True, kw_only=True)
class DummyFrankaConfig(ConfigSection):
    """``env.*.dummy``: the stand-in that answers with ``is_dummy``."""

    scene: Literal["free", "peg"] = "free"
    """``free``: nothing is in the way; ``peg``: the target lies in a hole of a block."""
    hole_clearance_meters: PositiveFloat = 0.01
    """How far from the hole's axis the gripper can move in it."""
    hole_depth_meters: PositiveFloat = 0.04
    """How far below the block's top the target is."""
    max_speed_meters_per_second: PositiveFloat = 0.25
    """Fastest motion of the gripper."""
    max_turn_radians_per_second: PositiveFloat = 1.5
    """Fastest turn of the gripper."""


@dataclass(frozen=True, kw_only=True)
class MarkedEnvConfig(EnvConfig):
    """Keys of environments whose episodes an operator may end."""

    success_key: str | None = None
    """Key of the keyboard by which the operator ends the episode as a success, of reward 1: a letter or a digit, or a
    name such as ``space``; null: none. All robots of a computer share its keyboard."""
    failure_key: str | None = None
    """Key by which the operator ends it as a failure."""

    def required_packages(self) -> tuple[str, ...]:
        """Return what hears the keys."""
        heard = ("pynput",) if self.success_key is not None or self.failure_key is not None else ()
        return (*super().required_packages(), *heard)


@dataclass(frozen=True, kw_only=True)
class RealWorldEnvConfig(MarkedEnvConfig):
    """``env_type: realworld``: a Franka arm, one for each env worker, or a stand-in of it (``is_dummy``)."""

    is_dummy: bool = False
    """A kinematic stand-in answers instead of a robot, in a time of its own."""
    client: str | None = None
    """Who speaks to the robot: ``package.module:Name``, called with ``robot_ip``, ``camera_serials``, ``image_size``;
    returns a ``FrankaClient``. ``rlinf.envs.realworld.franka_server:FrankaServerClient`` is included."""
    client_params: dict[str, Any] = field(default_factory=dict)
    """Further arguments of ``client``."""
    task_description: str = "Move the gripper to the target."
    """The task in words."""
    target_ee_pose: list[float] | None = None
    """Pose of the end effector that solves the task: x, y, z in metres, roll, pitch, yaw in radians. null leaves it to
    the operator (``success_key``) or to a reward model to say what success is."""
    reset_ee_pose: list[float] = field(default_factory=lambda: [0.5, 0.0, 0.3, 3.1416, 0.0, 0.0])
    """Pose that episodes begin in."""
    random_xy_meters: NonNegativeFloat = 0.05
    """Episodes begin up to this far from it along x and y."""
    random_yaw_radians: NonNegativeFloat = 0.0
    """Episodes begin turned by up to this around the vertical."""
    reset_tolerance_meters: PositiveFloat = 0.01
    """How close to its start the arm has to come to rest."""
    reset_timeout_seconds: PositiveFloat = 15.0
    """How long it may take to get there."""
    success_meters: PositiveFloat = 0.01
    """Distance from the target within which the task is solved."""
    success_radians: PositiveFloat = 0.2
    """Angle to the target within which it is."""
    use_dense_reward: bool = False
    """Subtract the distance from the target, in metres, from the reward, which is 1 for success and else 0."""
    workspace_low: list[float] = field(default_factory=lambda: [0.3, -0.25, 0.02])
    """Least x, y, z in metres that the end effector is ever sent to."""
    workspace_high: list[float] = field(default_factory=lambda: [0.7, 0.25, 0.5])
    """Largest x, y, z."""
    max_tilt_radians: NonNegativeFloat = 0.5
    """Largest angle to the orientation of ``reset_ee_pose`` that it is ever sent to."""
    max_step_meters: PositiveFloat = 0.02
    """Way of an action of length 1, and the longest way of one action."""
    max_step_radians: PositiveFloat = 0.1
    """Turn of an action of length 1, and the largest turn of one action."""
    max_force_newtons: PositiveFloat | None = 40.0
    """Force at which the arm stops where it is and the episode is cut off; null never does."""
    control_frequency_hz: PositiveFloat = 10.0
    """Actions per second."""
    fixed_rotation: bool = False
    """Actions do not turn the gripper."""
    no_gripper: bool = False
    """Actions do not move the fingers."""
    image_size: PositiveInt | None = 128
    """Height and width of the cameras' images in pixels; null shows ``states`` only."""
    dummy: DummyFrankaConfig = field(default_factory=DummyFrankaConfig)
    """The stand-in."""

    @property
    def num_actions(self) -> int:
        """Numbers of an action: a step, a turn and the gripper, as far as actions have them."""
        return 3 + 3 * (not self.fixed_rotation) + (not self.no_gripper)


@dataclass(frozen=True, kw_only=True)
class RobotEnvConfig(MarkedEnvConfig):
    """``env_type: robot``: a robot of any kind, one for each env worker, by a driver of your own."""

    client: str
    """Who speaks to the robot: ``package.module:Name``, called with ``robot`` (its entry of ``hardware.configs``),
    ``state_dim``, ``action_dim``, ``num_cameras``, ``image_size``; returns a ``RobotClient``."""
    client_params: dict[str, Any] = field(default_factory=dict)
    """Further arguments of ``client``."""
    state_dim: PositiveInt
    """Numbers that the robot reports of itself."""
    action_dim: PositiveInt
    """Numbers of an action: those of all arms, hands and grippers together."""
    task_description: str = "Solve the task."
    """The task in words."""
    num_cameras: NonNegativeInt = 1
    """Cameras; the first one is ``main_images``."""
    image_size: PositiveInt | None = 128
    """Height and width of the cameras' images in pixels; null shows ``states`` only."""
    control_frequency_hz: PositiveFloat = 10.0
    """Actions per second."""

    @property
    def num_actions(self) -> int:
        """Numbers of an action."""
        return self.action_dim


envs.register("robot", "rlinf.envs.realworld.robot:RobotEnv", config=RobotEnvConfig)
envs.register("realworld", "rlinf.envs.realworld.vector:RealWorldEnv", config=RealWorldEnvConfig)

hardware_types: Registry[Any] = Registry("hardware type")
"""By ``hardware.type``: the keys of an entry of its ``configs``; other types have any."""
hardware_types.register("franka", config=FrankaHardwareConfig)
