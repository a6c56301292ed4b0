"""What an environment needs of a Franka arm, and how it gets hold of one; imports no torch."""

from __future__ import annotations

import importlib
import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rlinf.envs.raw_chunk import Frame
from rlinf.envs.realworld.poses import Vector
from rlinf.errors import ConfigError


@dataclass(frozen=True, slots=True)
class FrankaState:
    """What an arm reports of itself.

    Attributes:
        pose: float64 [7]; of the end effector in the robot's base frame: metres, then a quaternion x, y, z, w.
        velocity: float64 [6]; metres per second, then radians per second.
        wrench: float64 [6]; external force in newtons, then torque in newton metres.
        gripper: From 0, closed, to 1, open.
    """

    pose: Vector
    velocity: Vector
    wrench: Vector
    gripper: float


class FrankaClient(Protocol):
    """Speaks to one arm, its gripper and its cameras. Poses are those of ``FrankaState``.

    With ``intervener_type: client`` it also has ``operator_action()``, which returns the action, float64 [A], of a
    device that the operator holds (a GELLO arm, a headset), or None where the operator does not act.
    """

    def state(self) -> FrankaState:
        """Return what the arm reports now."""

    def move_to(self, pose: Vector) -> None:
        """Send the end effector to a pose and return at once; it replaces the pose it was sent to before."""

    def set_gripper(self, opening: float) -> None:
        """Send the fingers to an opening from 0, closed, to 1, and return at once."""

    def frames(self) -> list[Frame]:
        """Return the newest image of each camera, uint8 [H, W, 3], in the order of ``camera_serials``."""

    def reset(self) -> None:
        """Clear errors, so that the arm moves again; called before each episode."""

    def close(self) -> None:
        """Stop the arm and free the connection."""


class Clock(Protocol):
    """The time that an arm moves in."""

    def now(self) -> float:
        """Return seconds since some moment."""

    def sleep(self, seconds: float) -> None:
        """Let time pass."""


class WallClock:
    """The time of a robot."""

    def now(self) -> float:
        """See ``Clock``."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """See ``Clock``."""
        time.sleep(seconds)


@dataclass(slots=True)
class Connection:
    """An arm in use.

    Attributes:
        client: Speaks to it.
        clock: Its time.
        num_users: Environments that share it, one at a time.
    """

    client: FrankaClient
    clock: Clock
    num_users: int = 0


class Connections:
    """The arms of this process by address: training and evaluation drive the same one alternately."""

    def __init__(self) -> None:
        self._open: dict[str, Connection] = {}

    def take(self, address: str, make: Callable[[], Connection]) -> Connection:
        """Return the connection to ``address``, made by ``make`` if there is none."""
        if address not in self._open:
            self._open[address] = make()
        self._open[address].num_users += 1
        return self._open[address]

    def clients(self) -> list[Any]:
        """Return the drivers in use."""
        return [connection.client for connection in self._open.values()]

    def release(self, address: str) -> None:
        """Give a connection back; the last user closes it."""
        connection = self._open[address]
        connection.num_users -= 1
        if connection.num_users == 0:
            del self._open[address]
            connection.client.close()


connections = Connections()


def load_client(path: str) -> Callable[..., FrankaClient]:
    """Return what ``env.*.client`` names.

    Args:
        path: ``package.module:Name``.

    Raises:
        ConfigError: There is no such thing, or it cannot be called.
    """
    module, _, name = path.partition(":")
    try:
        client = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"env.*.client: received '{path}', which cannot be imported ({error}); allowed: package.module:Name of a "
            "FrankaClient. Install its package on the robot's node, or correct the name."
        ) from error
    if not callable(client):
        raise ConfigError(f"env.*.client: received '{path}', which is a {type(client).__name__} and cannot be called.")
    return client  # type: ignore[no-any-return]


def make_client(path: str, params: Mapping[str, Any], **described: Any) -> Any:
    """Call what ``env.*.client`` names.

    Args:
        path: ``package.module:Name``.
        params: ``env.*.client_params``.
        **described: Arguments that every client gets: what the recipe says of the robot and of its images.

    Returns:
        The client.

    Raises:
        ConfigError: As ``load_client``; or it does not take one of ``params``.
    """
    make = load_client(path)
    accepted = _parameters(make)
    names = {each.name for each in accepted if each.kind in {each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD}}
    takes_any = any(each.kind is each.VAR_KEYWORD for each in accepted)
    unknown = sorted(name for name in params if name in described or not (takes_any or name in names))
    if unknown:
        allowed = ", ".join(sorted(names - described.keys())) or "none"
        raise ConfigError(
            f"env.*.client_params: received {', '.join(unknown)}; allowed for '{path}': {allowed}. Correct or remove "
            "the names."
        )
    return make(**described, **params)


def _parameters(make: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(make).parameters.values())
    except ValueError:  # what is compiled does not always say
        return [inspect.Parameter("arguments", inspect.Parameter.VAR_KEYWORD)]
