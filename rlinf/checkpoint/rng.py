"""The random number generators of one process as one piece of state."""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np

from rlinf.errors import CheckpointError

_LOG = logging.getLogger(__name__)


class RngState:
    """Saves and restores Python's, NumPy's and torch's generators (CPU and CUDA), and named ones of one's own.

    torch's are included when the process uses torch, CUDA's when it uses CUDA.

    Args:
        generators: Further generators by name: ``random.Random``, ``numpy.random.Generator`` or ``torch.Generator``.
    """

    def __init__(self, generators: Mapping[str, Any] | None = None) -> None:
        self._generators = dict(generators or {})
        for name, generator in self._generators.items():
            _kind(name, generator)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of all generators."""
        state: dict[str, Any] = {"python": random.getstate(), "numpy": np.random.get_state(legacy=False)}
        torch = sys.modules.get("torch")
        if torch is not None:
            state["torch"] = torch.get_rng_state()
            # Asking CUDA for its state would start it, which costs memory on a device that this process may not use.
            if torch.cuda.is_initialized():
                state["cuda"] = torch.cuda.get_rng_state_all()
        state["generators"] = {name: _get(name, generator) for name, generator in self._generators.items()}
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore all generators.

        Args:
            state_dict: What ``state_dict`` returned.

        Raises:
            CheckpointError: The named generators or the number of CUDA devices differ.
        """
        saved: dict[str, Any] = state_dict["generators"]
        if saved.keys() != self._generators.keys():
            raise CheckpointError(
                f"random generators differ: saved {sorted(saved) or 'none'}, this run has "
                f"{sorted(self._generators) or 'none'}"
            )
        if "torch" in state_dict:
            _set_torch(state_dict)
        random.setstate(_tuples(state_dict["python"]))
        np.random.set_state(state_dict["numpy"])
        for name, generator in self._generators.items():
            _set(name, generator, saved[name])


def _set_torch(state_dict: dict[str, Any]) -> None:
    import torch

    if "cuda" in state_dict:
        states, devices = state_dict["cuda"], torch.cuda.device_count()
        if devices == 0:
            _LOG.warning("the checkpoint holds CUDA random states and there is no CUDA device; draws will differ")
        elif len(states) != devices:
            raise CheckpointError(
                f"the checkpoint holds random states of {len(states)} CUDA devices, this process sees {devices}; "
                "resume with as many devices a process"
            )
        else:
            torch.cuda.set_rng_state_all([state.cpu() for state in states])
    torch.set_rng_state(state_dict["torch"].cpu())


def _kind(name: str, generator: Any) -> str:
    if isinstance(generator, random.Random):
        return "python"
    if isinstance(generator, np.random.Generator):
        return "numpy"
    torch: ModuleType | None = sys.modules.get("torch")
    if torch is not None and isinstance(generator, torch.Generator):
        return "torch"
    raise CheckpointError(
        f"random generator '{name}' is a {type(generator).__name__}; use random.Random, numpy.random.Generator or "
        "torch.Generator"
    )


def _get(name: str, generator: Any) -> Any:
    kind = _kind(name, generator)
    if kind == "python":
        return generator.getstate()
    return generator.bit_generator.state if kind == "numpy" else generator.get_state()


def _set(name: str, generator: Any, state: Any) -> None:
    kind = _kind(name, generator)
    if kind == "python":
        generator.setstate(_tuples(state))
    elif kind == "numpy":
        generator.bit_generator.state = state
    else:
        generator.set_state(state.cpu())


def _tuples(state: Any) -> Any:
    """Return Python's generator state as the tuple it must be, also after a format that only knows lists."""
    return (state[0], tuple(state[1]), state[2])
