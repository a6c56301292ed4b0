"""Checkpoints: a killed run resumes as if it had not been interrupted.

Owns the folder layout, atomic publishing, retention and ``runner.resume_dir``. May import ``rlinf.errors``,
``rlinf.registry``, ``rlinf.utils`` and ``rlinf.config``; torch only when tensors are stored, Ray never. The owner of a
state writes it below the folder that ``CheckpointManager.begin`` returns, nests of tensors with ``tree_file``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlinf.checkpoint.checkpoint_manager import CheckpointManager, checkpoint_step

__all__ = ["CheckpointManager", "checkpoint_step"]

_MODULES = {
    "CheckpointManager": "checkpoint_manager",
    "checkpoint_step": "checkpoint_manager",
}


def __getattr__(name: str) -> Any:
    """Import an exported name's module when the name is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
