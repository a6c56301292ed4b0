"""The intervener ``spacemouse``: a person acts while the device is pushed."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import torch

from rlinf.config.schema.env import EnvConfig
from rlinf.config.schema.intervention import SpaceMouseIntervenerConfig
from rlinf.envs.interveners import Situation
from rlinf.envs.interveners.person import require_one_environment, twist_to_action
from rlinf.errors import EnvironmentFailure
from rlinf.utils.optional import install_command, require

_POLL_SECONDS = 0.002
"""How long the reading thread rests when no report waits; the device sends one every 8 ms."""
_CLOSE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Deflection:
    """What the newest reports of a SpaceMouse say.

    Attributes:
        motion: Along and around x, y, z, each in about [-1, 1]; x points forward, y left, z up.
        left: Whether the left button is down.
        right: Whether the right one is.
    """

    motion: tuple[float, ...] = (0.0,) * 6
    left: bool = False
    right: bool = False


class SpaceMouseReader:
    """The newest reports of a device, which a thread reads as they come.

    The system keeps few reports and drops the newest ones when nothing reads them, that of a released device included.

    Args:
        device: An open ``SpaceMouseDevice``, which does not block.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        self._newest = Deflection()
        self._time = -1.0
        self._click: bool | None = None
        self._error: Exception | None = None
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spacemouse", daemon=True)
        self._thread.start()

    def newest(self) -> Deflection:
        """Return what the device shows now.

        Raises:
            EnvironmentFailure: It cannot be read any more.
        """
        if self._error is not None:
            raise EnvironmentFailure(
                f"env.*.wrappers: intervention: the SpaceMouse does not answer any more ({self._error}). Check its "
                "cable or its receiver, and start again."
            ) from self._error
        return self._newest

    def take_click(self) -> bool | None:
        """Return whether the last click since the last call was a right one; None without a click."""
        click, self._click = self._click, None
        return click

    def close(self) -> None:
        """End the thread and free the device."""
        self._is_closed.set()
        self._thread.join(_CLOSE_SECONDS)
        self._device.close()

    def _run(self) -> None:
        try:
            while not self._is_closed.is_set():
                self._read()
        except Exception as error:  # noqa: BLE001 - the boundary of a thread: who needs the device gets it raised
            self._error = error

    def _read(self) -> None:
        """Take one report, or rest if none waits."""
        state = self._device.read()
        if state.t == self._time:
            self._is_closed.wait(_POLL_SECONDS)
            return
        self._time = state.t
        # The package writes every report into the same state.
        motion = (state.x, state.y, state.z, state.roll, state.pitch, state.yaw)
        left, right = (bool(state.buttons[0]), bool(state.buttons[-1])) if state.buttons else (False, False)
        if left != right:
            self._click = right
        self._newest = Deflection(motion, left, right)


class SpaceMouseIntervener:
    """Acts while the device is off its rest; its left button closes the gripper, its right one opens it.

    Args:
        cfg: Its keys.
        env: The environment's configuration.
        row: Which of the environments of its worker it drives; only the first can be.

    Raises:
        ConfigError: The worker holds several environments.
        EnvironmentFailure: No device answers, or its package is of another version.
        MissingPackageError: pyspacemouse is not installed.
    """

    state_names = ("gripper",)

    def __init__(self, cfg: SpaceMouseIntervenerConfig, *, env: EnvConfig, row: int) -> None:
        require_one_environment(row, cfg.intervener_type)
        self.cfg, self.env = cfg, env
        self.gripper = 1.0
        self._reader = SpaceMouseReader(_open_device())

    def begin(self) -> None:
        """See ``Intervener``: an episode begins with the gripper open."""
        self.gripper = 1.0
        self._reader.take_click()

    def act(self, situation: Situation) -> torch.Tensor | None:
        """See ``Intervener``.

        Raises:
            EnvironmentFailure: The device does not answer any more.
        """
        newest, click = self._reader.newest(), self._reader.take_click()
        if click is not None:
            self.gripper = 1.0 if click else -1.0
        is_at_rest = max(abs(value) for value in newest.motion) < self.cfg.dead_zone
        if is_at_rest and click is None and not (newest.left or newest.right):
            return None
        scaled = [value * self.cfg.sensitivity for value in newest.motion]
        return twist_to_action(scaled, self.gripper, len(situation.action), cfg=self.cfg, env=self.env)

    def close(self) -> None:
        """See ``Intervener``: free the device."""
        self._reader.close()


def _open_device() -> Any:
    package: Any = require("pyspacemouse", needed_by="the wrapper intervention (spacemouse)")
    if not hasattr(package, "AxisConvention"):
        raise EnvironmentFailure(
            "env.*.wrappers: intervention: the package pyspacemouse is older than 2.1, which reads devices otherwise. "
            f"Upgrade it with: {install_command('pyspacemouse')}"
        )
    try:
        # Of ROS: x forward, y left, z up, as the arm's, and turns around them.
        return package.open(axis_convention=package.AxisConvention.ROS)
    except RuntimeError as error:
        raise EnvironmentFailure(
            f"env.*.wrappers: intervention: no SpaceMouse answers ({error}). Plug it in, install the system's library "
            "(sudo apt-get install libhidapi-hidraw0), and give this user access to the device."
        ) from error
