"""What a run says about itself: mergeable metrics, the metric logger, the console, and the experiment's folder.

Owns ``metrics.jsonl``, ``events.jsonl``, ``run.json``, ``config.yaml``, the page about a run (``report/``) and all that
is shown on the terminal while training. May import ``rlinf.errors``, ``rlinf.registry``, ``rlinf.utils``,
``rlinf.placement`` and ``rlinf.config``; neither torch nor Ray. A new place to send metrics to is a class in
``backends.py``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlinf.telemetry.console import Console
    from rlinf.telemetry.logger import MetricLogger
    from rlinf.telemetry.metrics import Metric, MetricAccumulator, finalize, merge_metrics
    from rlinf.telemetry.rundir import claim_run_dir

__all__ = ["Console", "Metric", "MetricAccumulator", "MetricLogger", "claim_run_dir", "finalize", "merge_metrics"]

_MODULES = {
    "claim_run_dir": "rundir",
    "Console": "console",
    "Metric": "metrics",
    "MetricAccumulator": "metrics",
    "MetricLogger": "logger",
    "finalize": "metrics",
    "merge_metrics": "metrics",
}


def __getattr__(name: str) -> Any:
    """Import an exported name's module when the name is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
