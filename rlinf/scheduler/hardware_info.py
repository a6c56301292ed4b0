"""Descriptions of the hardware that a worker was placed on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class HardwareInfo(dict[str, Any]):
    """The keys of one device or robot; published code reads ``type``, ``model`` and ``config`` as attributes."""

    @property
    def type(self) -> str:
        """Kind of hardware: that of the accelerator, or ``Franka`` for example."""
        return str(self["type"])

    @property
    def model(self) -> str:
        """Model of an accelerator; of other hardware its kind."""
        return str(self.get("model", self["type"]))

    @property
    def config(self) -> SimpleNamespace:
        """What a node group declares of it: ``info.config.robot_ip``, for example."""
        return SimpleNamespace(**{key: value for key, value in self.items() if key != "type"})
