"""The calls of ``pyspacemouse`` 2.1 that are used, as its wheel has them, on a device that the test pushes."""

import enum
import inspect
import itertools
from collections import deque
from types import ModuleType
from typing import Any


class AxisConvention(str, enum.Enum):
    LEGACY = "legacy"
    ROS = "ros"


class State:
    """``SpaceMouseState``: one object, into which the package writes each report."""

    def __init__(self) -> None:
        self.t = -1.0
        self.x = self.y = self.z = self.roll = self.pitch = self.yaw = 0.0
        self.buttons = [0, 0]


class Device:
    """``SpaceMouseDevice``: ``read`` takes at most one of the reports that wait, and does not block."""

    def __init__(self) -> None:
        self.reports: deque[dict[str, Any]] = deque()
        self.error: Exception | None = None
        self.is_closed = False
        self.num_reads = 0
        self._state, self._clock = State(), itertools.count(1)

    def push(self, **values: Any) -> None:
        """Let the device send a report of these axes, or of ``buttons``; 0 for axes that are not named."""
        rest = {} if "buttons" in values else dict.fromkeys(("x", "y", "z", "roll", "pitch", "yaw"), 0.0)
        self.reports.append({**rest, **values})

    def read(self) -> State:
        self.num_reads += 1
        if self.error is not None:
            raise self.error
        if self.reports:
            for name, value in self.reports.popleft().items():
                setattr(self._state, name, value)
            self._state.t = float(next(self._clock))
        return self._state

    def close(self) -> None:
        self.is_closed = True


OPENED_WITH = inspect.signature(
    lambda callback=None, dof_callback=None, dof_callbacks=None, button_callback=None, button_callbacks=None,
    nonblocking=True, device=None, device_index=0, device_spec=None, axis_convention=None: None
)  # fmt: skip
"""The arguments of ``pyspacemouse.open``."""


def make_package(device: Device | None) -> ModuleType:
    """Return the package; without a device it finds none."""
    package: Any = ModuleType("pyspacemouse")

    def open_device(*args: Any, **keys: Any) -> Device:
        given = OPENED_WITH.bind(*args, **keys).arguments
        assert given["axis_convention"] is AxisConvention.ROS
        if device is None:
            raise RuntimeError("No connected or supported devices found.")
        return device

    package.open, package.AxisConvention = open_device, AxisConvention
    return package
