"""This process's kind of device, found at first use: importing a worker does not import torch."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from rlinf.placement.accelerator_kinds import ACCELERATOR_KINDS, kind_of
from rlinf.utils.optional import require

if TYPE_CHECKING:
    import torch


def torch_device_type() -> str:
    """Return torch's name for this process's kind of device."""
    import torch

    placed_on = kind_of(os.environ.get("ACCELERATOR_TYPE", ""))
    if placed_on is not None and placed_on.torch_package:
        require(placed_on.torch_package, needed_by=f"An accelerator of type {placed_on.type}")
    for kind in ACCELERATOR_KINDS if placed_on is None else (placed_on,):
        module = getattr(torch, kind.torch_device, None)
        if module is not None and module.is_available():
            return kind.torch_device
    return "cpu"


def worker_device() -> torch.device:
    """Return this worker's own device: its accelerator among the visible ones, or the CPU."""
    import torch

    kind = torch_device_type()
    if kind == "cpu":
        return torch.device("cpu")
    own = os.environ.get("LOCAL_ACCELERATOR_RANK", "0")
    visible = os.environ.get("VISIBLE_DEVICES", own).split(",")
    return torch.device(kind, visible.index(own) if own in visible else 0)


class LazyDeviceType:
    """A class attribute that is ``torch_device_type()``."""

    def __get__(self, instance: Any, owner: type) -> str:
        return torch_device_type()


class LazyPlatform:
    """A class attribute that is the torch module of this process's kind of device."""

    def __get__(self, instance: Any, owner: type) -> Any:
        import torch

        return getattr(torch, torch_device_type())
