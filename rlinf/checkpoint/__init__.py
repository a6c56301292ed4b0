"""What a run needs to go on after a kill as if nothing had happened: checkpoints, and the state that goes into them.

Owns the folder layout, atomic publishing, retention, ``runner.resume_dir`` and the registry of everything mutable. May
import ``rlinf.errors``, ``rlinf.registry``, ``rlinf.utils`` and ``rlinf.config``; torch only when tensors are stored,
Ray never. New kinds of state implement ``Stateful`` where they live and are registered by their owner.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlinf.checkpoint.manager import CheckpointManager, checkpoint_step, load_runner_state
    from rlinf.checkpoint.rng import RngState
    from rlinf.checkpoint.stateful import Stateful, StatefulRegistry

__all__ = ["CheckpointManager", "RngState", "Stateful", "StatefulRegistry", "checkpoint_step", "load_runner_state"]

_MODULES = {
    "CheckpointManager": "manager",
    "RngState": "rng",
    "Stateful": "stateful",
    "StatefulRegistry": "stateful",
    "checkpoint_step": "manager",
    "load_runner_state": "manager",
}


def __getattr__(name: str) -> Any:
    """Import an exported name's module when the name is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
