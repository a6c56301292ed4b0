"""The wrapper ``intervention``, and who may intervene: one dataclass per type, all sharing ``IntervenerConfig``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Ge

from rlinf.config.schema.base import ConfigSection, Fraction, PositiveFloat, PositiveInt
from rlinf.config.schema.env import WrapperConfig, wrappers
from rlinf.registry import Registry


@dataclass(frozen=True, kw_only=True)
class IntervenerConfig(ConfigSection):
    """Keys of every intervener."""

    intervener_type: str
    """Registered intervener."""


@dataclass(frozen=True, kw_only=True)
class ScriptedIntervenerConfig(IntervenerConfig):
    """``intervener_type: scripted``: a program that takes over as a person would; whichever rule is set may call it."""

    policy: str
    """Registered scripted policy that acts, ``metaworld`` say."""
    takeover_probability: Fraction = 0.0
    """Probability of taking over at each step."""
    takeover_distance: PositiveFloat | None = None
    """Take over where the policy's action is further from its own than this (root mean square over the action)."""
    release_share: Fraction = 0.5
    """Having taken over by distance, hand back only below this share of it."""
    stall_steps: PositiveInt | None = None
    """Take over when the best reward of the episode has not risen for this number of steps."""
    min_progress: Annotated[float, Ge(0)] = 0.0
    """Rise of the best reward that does not yet count."""
    hold_steps: PositiveInt = 5
    """Steps that it acts, at least, once it has taken over."""


KEYBOARD_KEYS = tuple("wsadrfikjluocv")
"""Keys that move the arm, turn it, and close and open its gripper, with ``intervener_type: keyboard``."""


@dataclass(frozen=True, kw_only=True)
class PersonIntervenerConfig(IntervenerConfig):
    """Keys of all whom a person moves by a device that says nothing of the robot's own numbers."""

    gripper_opens: Literal[-1, 1] | None = None
    """The last number of a native action that opens the gripper; null is what is known of ``env_type``: needed for
    ``robot``, ``gymnasium`` and ``guest`` with a gripper."""


@dataclass(frozen=True, kw_only=True)
class KeyboardIntervenerConfig(PersonIntervenerConfig):
    """``intervener_type: keyboard``: a person acts while keys are held: w a s d r f to move, i j k l u o to turn."""

    speed: Fraction = 0.5
    """Size of the action along an axis whose key is held; 1 is the largest."""

    def required_packages(self) -> tuple[str, ...]:
        """Return what hears the keys."""
        return ("pynput",)


@dataclass(frozen=True, kw_only=True)
class SpaceMouseIntervenerConfig(PersonIntervenerConfig):
    """``intervener_type: spacemouse``: a person acts while a SpaceMouse is pushed or one of its buttons is down."""

    dead_zone: Fraction = 0.1
    """Deflection, of 1, below which the device counts as let go."""
    sensitivity: PositiveFloat = 1.0
    """Factor on the deflection; actions stay within [-1, 1]."""

    def required_packages(self) -> tuple[str, ...]:
        """Return the device's driver."""
        return ("pyspacemouse",)


@dataclass(frozen=True, kw_only=True)
class GelloIntervenerConfig(PersonIntervenerConfig):
    """``intervener_type: gello``: a person acts by moving a GELLO arm of a Franka, until it rests for a while."""

    port: str
    """Serial device of the arm, ``/dev/serial/by-id/...`` say."""
    baudrate: PositiveInt = 57600
    """Bits per second that its servos are set to."""
    joint_ids: list[int] = field(default_factory=lambda: [1, 2, 3, 4, 5, 6, 7])
    """Servos of the joints, from the base to the hand."""
    joint_offsets: list[float]
    """Of each joint in radians, as GELLO's calibration finds them: the servo's angle where the robot's is 0."""
    joint_signs: list[Literal[-1, 1]]
    """Of each joint: -1 where its servo turns the other way round."""
    gripper_id: int | None = 8
    """Servo of the trigger; null: there is none, and the gripper stays open."""
    gripper_open_degrees: float = 0.0
    """Angle of that servo with the trigger let go."""
    gripper_closed_degrees: float = -42.0
    """Its angle with the trigger pulled."""
    takeover_radians: PositiveFloat = 0.05
    """How far a joint is moved before the person acts."""
    release_steps: PositiveInt = 5
    """Actions in a row without a motion after which the policy acts again."""

    def required_packages(self) -> tuple[str, ...]:
        """Return what speaks to the servos."""
        return ("dynamixel_sdk",)


@dataclass(frozen=True, kw_only=True)
class ClientIntervenerConfig(IntervenerConfig):
    """``intervener_type: client``: a person acts by a device that the robot's own driver (``env.*.client``) reads."""


@dataclass(frozen=True, kw_only=True)
class InterventionConfig(WrapperConfig):
    """``name: intervention``: an operator may act in place of the policy, step by step."""

    intervener: IntervenerConfig
    """Who."""


interveners: Registry[Any] = Registry("intervener")
"""By ``intervener_type``; called as ``builder(cfg, env=..., row=...)`` with the row of the environment."""
interveners.register("client", "rlinf.envs.realworld.robot_device:ClientIntervener", config=ClientIntervenerConfig)
interveners.register("gello", "rlinf.envs.realworld.gello:GelloIntervener", config=GelloIntervenerConfig)
interveners.register("keyboard", "rlinf.envs.interveners.keyboard:KeyboardIntervener", config=KeyboardIntervenerConfig)
interveners.register("scripted", "rlinf.envs.interveners.scripted:ScriptedIntervener", config=ScriptedIntervenerConfig)
interveners.register(
    "spacemouse", "rlinf.envs.interveners.spacemouse:SpaceMouseIntervener", config=SpaceMouseIntervenerConfig
)
wrappers.register("intervention", "rlinf.envs.wrappers.intervention:Intervention", config=InterventionConfig)
