"""How numbers look on a terminal: formats, progress line, metric table and closing lines; nothing is printed here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from rich import box
from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

# Known groups in the order in which a step runs through them; others follow by name.
_GROUPS = ("train", "eval", "env", "rollout", "time")
_BAR_WIDTH = 16
# Columns of a name next to its number, twice in 80.
_HALF_WIDTH = 24


def format_number(value: float) -> str:
    """Return a number with about four significant digits; ``-`` for NaN.

    Args:
        value: Any float.

    Example:
        >>> format_number(12345.0), format_number(0.98765), format_number(3e-5)
        ('12345', '0.9877', '3e-05')
    """
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if float(value).is_integer() and abs(value) < 1e9:
        return str(int(value))
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"


def format_duration(seconds: float) -> str:
    """Return seconds as ``h:mm:ss``, with days where there are any.

    Args:
        seconds: 0 or more.
    """
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{days}d {hour:02}:{minute:02}:{second:02}" if days else f"{hour}:{minute:02}:{second:02}"


def progress_parts(step: int, total: int, shown: Mapping[str, float], eta_seconds: float | None) -> dict[str, str]:
    """Return the parts of the progress line as text by label.

    Args:
        step: Steps done.
        total: Steps to do.
        shown: Numbers by label.
        eta_seconds: Seconds to go; None when unknown.
    """
    parts = {"step": f"{step}/{total}"}
    parts |= {label: format_number(value) for label, value in shown.items()}
    return parts | {"ETA": "?" if eta_seconds is None else format_duration(eta_seconds)}


class LiveLine:
    """A bar and a line that is computed anew at every refresh, so that it never shows a former state.

    Args:
        describe: Returns the done fraction and the text.
    """

    def __init__(self, describe: Callable[[], tuple[float, str]]) -> None:
        self._describe = describe

    def __rich_console__(self, console: RichConsole, options: ConsoleOptions) -> RenderResult:
        """Render at the width the terminal has now."""
        done, text = self._describe()
        grid = Table.grid(padding=(0, 1))
        grid.add_column(width=_BAR_WIDTH)
        # Cut off at the terminal's width: a second line would flicker.
        grid.add_column(overflow="ellipsis", no_wrap=True)
        grid.add_row(ProgressBar(total=1.0, completed=done, width=_BAR_WIDTH), Text(text))
        yield grid


def metric_table(metrics: Mapping[str, float], title: str) -> Table:
    """Return a table of two metrics a row, one block per prefix; of one, if a name is too long for half of the width.

    Args:
        metrics: Numbers by name.
        title: Headline.
    """
    table = Table(title=Text(title), box=box.SIMPLE, show_header=False, padding=(0, 1), title_justify="left")
    groups = {
        group: [(name.removeprefix(f"{group}/"), format_number(metrics[name])) for name in names]
        for group, names in _by_group(metrics).items()
    }
    longest = max((len(name) for cells in groups.values() for name, _ in cells), default=0)
    per_row = 2 if longest <= _HALF_WIDTH else 1
    for _ in range(per_row):
        table.add_column(overflow="fold", ratio=3)
        table.add_column(justify="right", overflow="fold", min_width=10)
    for group, cells in groups.items():
        table.add_section()
        if group:
            table.add_row(Text(f"{group}/", style="bold"))
        for start in range(0, len(cells), per_row):
            table.add_row(*(Text(text) for cell in cells[start : start + per_row] for text in cell))
    return table


def summary_lines(title: str, paths: Mapping[str, str | Path | None], metrics: Mapping[str, float]) -> Iterator[str]:
    """Yield the lines that end a run.

    Args:
        title: Name and final step.
        paths: Places by label; those that are None are left out.
        metrics: Final numbers by name.
    """
    yield ""
    yield title
    present = {label: str(path) for label, path in paths.items() if path is not None}
    width = max((len(label) for label in [*metrics, *present]), default=0)
    for name, value in metrics.items():
        yield f"  {name:<{width}}  {format_number(value)}"
    for label, path in present.items():
        yield f"  {label:<{width}}  {path}"


def _by_group(metrics: Mapping[str, float]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name in sorted(metrics):
        group = name.split("/", 1)[0] if "/" in name else ""
        groups.setdefault(group, []).append(name)
    rank = {group: index for index, group in enumerate(_GROUPS)}
    return dict(sorted(groups.items(), key=lambda item: (rank.get(item[0], len(rank)), item[0])))
