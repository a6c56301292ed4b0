"""What of Megatron-Core assumes CUDA, stood in for on a machine without it.

Megatron-Core's modules name the device themselves: ``torch.cuda.current_device()``, ``device="cuda"``, synchronisation,
random states. Here each module's global ``torch`` becomes a proxy that answers with the CPU; torch itself, as all other
code sees it, stays as it is.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch

_FACTORIES = ("zeros", "ones", "empty", "full", "tensor", "arange", "randn", "rand")
"""Functions that Megatron-Core calls with ``device="cuda"``."""


class _Stream:
    """A CUDA stream that has always finished."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def wait_stream(self, _: object) -> None:
        """Do nothing."""

    def record_event(self) -> _Stream:
        """Return something to synchronise with."""
        return self

    def synchronize(self) -> None:
        """Do nothing."""


class _HostCuda(ModuleType):
    """``torch.cuda`` with a current device that is the CPU."""

    Stream = _Stream

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cuda, name)

    def current_device(self) -> str:
        """Return where tensors are made."""
        return "cpu"

    def synchronize(self, *_: Any) -> None:
        """Do nothing: operations of a CPU have ended when they return."""

    def current_stream(self, *_: Any) -> _Stream:
        """Return the only stream."""
        return _STREAM

    def stream(self, _: object) -> contextlib.AbstractContextManager[None]:
        """Return a context without effect."""
        return contextlib.nullcontext()


class _HostTorch(ModuleType):
    """``torch`` whose factories take ``device="cuda"`` for the CPU."""

    def __init__(self) -> None:
        super().__init__("torch")
        self.cuda = _HostCuda("torch.cuda")
        for name in _FACTORIES:
            setattr(self, name, _on_host(getattr(torch, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


class _RandomStates:
    """Random states of tensor-parallel ranks, which nothing draws from: there is no dropout, and weights are loaded."""

    @contextlib.contextmanager
    def fork(self, *_: Any) -> Iterator[None]:
        """Return a context without effect."""
        yield

    def get_states(self) -> dict[str, Any]:
        """Return no states."""
        return {}

    def set_states(self, _: dict[str, Any]) -> None:
        """Do nothing."""


def _as_on_host(value: Any, *, as_numpy: bool = False, record_stream: bool = False) -> Any:
    """Return what Megatron-Core's function of that name makes of a CUDA tensor: sizes of splits are no tensors."""
    del record_stream
    return value.numpy() if as_numpy and isinstance(value, torch.Tensor) else value


def _on_host(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **keywords: Any) -> Any:
        if str(keywords.get("device")).startswith("cuda"):
            keywords["device"] = "cpu"
        return function(*arguments, **keywords)

    return call


_STREAM = _Stream()
_HOST_TORCH = _HostTorch()


def use_host() -> None:
    """Let the imported modules of Megatron-Core work on the CPU; does nothing the second time."""
    for name, module in list(sys.modules.items()):
        if name.startswith("megatron.core") and vars(module).get("torch") is torch:
            module.__dict__["torch"] = _HOST_TORCH
    from megatron.core.tensor_parallel import random

    random.__dict__["_get_cuda_rng_state"] = lambda *_, **__: None
    random.__dict__["_set_cuda_rng_state"] = lambda *_, **__: None
    from megatron.core.transformer.moe import token_dispatcher

    token_dispatcher.__dict__["maybe_move_tensor_to_cpu"] = _as_on_host


def complete_moe() -> None:
    """Define a name that the routers look up, and that is there with TransformerEngine alone; on every device."""
    from megatron.core.transformer.moe import moe_utils

    moe_utils.__dict__.setdefault("te_general_gemm", None)


def forbid_random_draws() -> None:
    """Take away the random states that layers would draw from, on every device."""
    from megatron.core.tensor_parallel import random

    random.__dict__["_CUDA_RNG_STATE_TRACKER"] = _RandomStates()
    random.__dict__["_CUDA_RNG_STATE_TRACKER_INITIALIZED"] = True
