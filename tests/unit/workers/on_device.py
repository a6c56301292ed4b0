"""Tensors that stand for those of an accelerator: they know whether they were copied to the host."""

from typing import Any

import torch


class OnDevice(torch.Tensor):
    """What is computed from it lies where it does; ``cpu`` and ``to`` copy it to the host."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = super().__torch_function__(func, types, args, kwargs or {})
        return found.as_subclass(torch.Tensor) if func in (torch.Tensor.cpu, torch.Tensor.to) else found


def on_device(tensor: torch.Tensor) -> OnDevice:
    """Return a tensor as it would be on the device."""
    return tensor.clone().as_subclass(OnDevice)
