"""Puts a page together: what the tabs show as JSON, style, scripts and the plotting library, all in one file."""

from __future__ import annotations

import html
import json
import math
import re
import time
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from rlinf.telemetry.logger import METRICS_FILE
from rlinf.telemetry.report.curves import describe_curves, points_per_curve
from rlinf.telemetry.report.episodes import describe_episodes, describe_videos
from rlinf.telemetry.report.history import describe_history
from rlinf.telemetry.report.metric_table import MetricTable, read_metrics
from rlinf.telemetry.report.recipe import describe_recipe
from rlinf.telemetry.report.run_folder import RunFolder
from rlinf.telemetry.report.samples import describe_samples
from rlinf.telemetry.report.timeline import describe_timeline
from rlinf.telemetry.report.times import describe_times
from rlinf.telemetry.trace_export import TRACE_FILE
from rlinf.utils.files import write_atomic
from rlinf.utils.optional import require

INSTALL_COMMAND = "pip install 'rlinf[report]'"

# In this order: the first hold what the others use.
_SCRIPTS = (
    "page.js",
    "plots.js",
    "curves.js",
    "times.js",
    "timeline.js",
    "samples.js",
    "episodes.js",
    "recipe.js",
    "history.js",
    "start.js",
)
_PLACE = re.compile(r"<!--(\w+)-->")
# With these a string could end the script element that it stands in.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def write_report(runs: Sequence[RunFolder], output: Path, *, reload_seconds: int | None = None) -> None:
    """Write a page about runs, in one step: a reader sees the old page or the new one.

    Args:
        runs: The runs; the first is shown first.
        output: The file; its folder must exist.
        reload_seconds: After which a browser reads the page again, while a run goes on; None never.

    Raises:
        MissingPackageError: plotly is not installed.
    """
    library = _plotting_library()
    tables = [read_metrics(run.path / METRICS_FILE) for run in runs]
    max_points = points_per_curve(sum(len(table.columns) for table in tables))
    data = {
        "written": time.strftime("%Y-%m-%d %H:%M:%S %Z"),
        "runs": [
            _describe(run, table, output.absolute().parent, max_points=max_points, num_runs=len(runs))
            for run, table in zip(runs, tables, strict=True)
        ],
    }
    title = runs[0].name if len(runs) == 1 else f"{len(runs)} runs"
    write_atomic(output, render(data, title, library, reload_seconds))


def _describe(
    run: RunFolder, table: MetricTable, page_folder: Path, *, max_points: int, num_runs: int
) -> dict[str, Any]:
    trace, is_traced = _trace(run)
    return {
        "name": run.name,
        "folder": str(run.path),
        "step": table.steps[-1] if table.steps else None,
        "total": _total_steps(run),
        "seconds": table.seconds[-1] if table.seconds else None,
        "unreadable": table.num_unreadable,
        "curves": describe_curves(table, max_points),
        "times": describe_times(table),
        "timeline": describe_timeline(trace, is_enabled=is_traced, num_runs=num_runs),
        "samples": describe_samples(run.path, num_runs=num_runs),
        "episodes": describe_episodes(run.path),
        "videos": describe_videos(run, page_folder, num_runs=num_runs),
        "recipe": describe_recipe(run),
        "history": describe_history(run),
    }


def _section(run: RunFolder, *names: str) -> dict[str, Any]:
    """Return a section of the resolved recipe, as it was written."""
    section: Any = run.config
    for name in names:
        section = section.get(name) if isinstance(section, dict) else None
    return section if isinstance(section, dict) else {}


def _trace(run: RunFolder) -> tuple[Path, bool]:
    tracer = _section(run, "cluster", "tracer")
    path = tracer.get("path")
    return run.path / TRACE_FILE if not isinstance(path, str) else Path(path).expanduser(), bool(tracer.get("enable"))


def _total_steps(run: RunFolder) -> int | None:
    runner = _section(run, "runner")
    steps, epochs = runner.get("max_steps", -1), runner.get("max_epochs")
    total = steps if isinstance(steps, int) and steps >= 0 else epochs
    return total if isinstance(total, int) else None


def render(data: dict[str, Any], title: str, library: str, reload_seconds: int | None = None) -> str:
    """Return the page.

    Args:
        data: What the tabs show; all of it is escaped, none becomes markup.
        title: Of the page, plain text.
        library: Source of plotly.js.
        reload_seconds: See ``write_report``.
    """
    parts = {
        "title": html.escape(title),
        "reload": "" if reload_seconds is None else f'<meta http-equiv="refresh" content="{reload_seconds}">',
        "style": asset("page.css"),
        "data": script_json(data),
        "library": _as_script(library),
        "scripts": _as_script("\n".join(asset(name) for name in _SCRIPTS)),
    }
    # One pass: nothing that is put in is looked at again.
    return _PLACE.sub(lambda match: parts[match[1]], asset("page.html"))


def asset(name: str) -> str:
    """Return the text of a file of ``assets``."""
    return (resources.files("rlinf.telemetry.report") / "assets" / name).read_text(encoding="utf-8")


def script_json(data: Any) -> str:
    """Return JSON that may stand in a script element: none of its strings can end it."""
    text = json.dumps(_finite(data), allow_nan=False, separators=(",", ":"), default=str)
    return re.sub("[<>&]", lambda match: _ESCAPES[match[0]], text)


def _finite(data: Any) -> Any:
    """Replace numbers that JSON cannot hold."""
    if isinstance(data, dict):
        return {str(key): _finite(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def _as_script(text: str) -> str:
    return re.sub("</(script)", r"<\\/\1", text, flags=re.IGNORECASE)


def _plotting_library() -> str:
    offline: Any = require("plotly.offline", install=INSTALL_COMMAND, needed_by="the report of a run")
    return str(offline.get_plotlyjs())
