"""RLinf: reinforcement-learning infrastructure for embodied AI, reasoning and agents.

The package root imports nothing heavy, and has the Python API: ``train``, ``evaluate``, ``load_policy``, ``Callback``.
Take everything else from its sub-packages, whose order of layers is
``errors, registry`` < ``utils`` < ``placement`` < ``config`` < ``data`` < ``telemetry, checkpoint`` <
``algorithms, models, envs`` < ``scheduler`` < ``hybrid_engines`` < ``workers`` < ``runners`` < ``api`` < ``cli``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlinf.api.policy import TrainedPolicy, load_policy
    from rlinf.api.runs import Callback, RunResult, evaluate, train

__version__ = "0.1.0"

__all__ = ["Callback", "RunResult", "TrainedPolicy", "evaluate", "load_policy", "train"]

_EXPORTS = {
    "Callback": "rlinf.api.runs",
    "RunResult": "rlinf.api.runs",
    "TrainedPolicy": "rlinf.api.policy",
    "evaluate": "rlinf.api.runs",
    "load_policy": "rlinf.api.policy",
    "train": "rlinf.api.runs",
}


def __getattr__(name: str) -> Any:
    """Import a name of the Python API on first access."""
    if name not in _EXPORTS:
        raise AttributeError(f"module 'rlinf' has no attribute '{name}'")
    import importlib

    value = getattr(importlib.import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the names of the Python API and the version."""
    return sorted([*__all__, "__version__"])
