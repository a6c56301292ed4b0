"""What a person sees of a run: a live progress line, a table of metrics, and where everything lies at the end."""

from __future__ import annotations

import logging
import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO

from rich.console import Console as RichConsole
from rich.live import Live
from rich.table import Table

from rlinf.telemetry.panels import LiveLine, format_number, metric_table, progress_parts, summary_lines

# Metrics shown in the progress line, by label; of several names the first that was ever reported is taken.
_HEADLINES = {
    "return": ("env/return", "rollout/return", "train/return"),
    "success": ("env/success_once", "rollout/success_once", "env/success_at_end"),
    "eval return": ("eval/return",),
    "eval success": ("eval/success_once", "eval/success_at_end"),
    "steps/s": ("time/env_steps_per_second", "env/steps_per_second", "rollout/env_steps_per_second"),
}
# Labels of what ended episodes report.
_OF_EPISODES = ("return", "success")
# Steps whose durations the ETA is made of: enough to smooth out evaluations, few enough to follow a change of pace.
_ETA_WINDOW = 20
_MAX_WIDTH = 80


class Console:
    """Shows the progress of a run; a context manager.

    On a terminal one line at the bottom is kept up to date, and everything else that is printed or logged meanwhile
    appears above it. Without a terminal, or with ``RLINF_PLAIN=1``, each step prints one plain line; with
    ``RLINF_QUIET=1`` the end of the run is the only one.

    Args:
        total_steps: Steps that the whole run makes.
        title: Name of the run.
        quiet: Print nothing at all.
        start_step: Steps done before, by the run that this one continues.
        file: Where to print; None is the standard output.
        clock: Seconds from any fixed point; for tests.
    """

    def __init__(
        self,
        total_steps: int,
        title: str,
        quiet: bool = False,
        *,
        start_step: int = 0,
        file: IO[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total_steps = total_steps
        self._title = title
        self._says_end = _is_set("RLINF_QUIET") and not quiet
        self._quiet = quiet or self._says_end
        self._step = start_step
        self._clock = clock
        self._file = file
        self._phase = "starting"
        self._latest: dict[str, float] = {}
        self._marks: deque[tuple[float, int]] = deque(maxlen=_ETA_WINDOW + 1)
        self._rich = self._make_rich()
        self._live: Live | None = None
        self._restore = ExitStack()

    def _make_rich(self) -> RichConsole:
        # Outside a terminal rich would assume 80 columns as well; said here so that output in files never varies.
        width = None if self._is_live() else _MAX_WIDTH
        return RichConsole(file=self._file, width=width, quiet=self._quiet, highlight=False, markup=False, emoji=False)

    def _is_live(self) -> bool:
        # The stream is queried, not rich, which takes FORCE_COLOR for a terminal.
        stream = self._file or sys.stdout
        plain = _is_set("RLINF_PLAIN")
        dumb = os.environ.get("TERM", "").lower() in {"dumb", "unknown"}
        return not (self._quiet or plain or dumb) and stream.isatty()

    def __enter__(self) -> Console:
        """Start showing progress."""
        self._marks.append((self._clock(), self._step))
        if not self._is_live():
            self._print(
                f"{self._title}: {self._total_steps} steps" + (f", from step {self._step}" if self._step else "")
            )
            return self
        streams = (sys.stdout, sys.stderr)
        self._live = Live(
            LiveLine(self._describe),
            console=self._rich,
            # Each refresh costs a little time of a core that may be training.
            refresh_per_second=2,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),
            # Errors sent to a file must go on reaching the file.
            redirect_stderr=sys.stderr.isatty(),
        )
        self._restore.enter_context(self._live)
        # Handlers made earlier hold the real streams and would write through the live line.
        self._restore.enter_context(_handlers_follow({streams[0]: sys.stdout, streams[1]: sys.stderr}))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the live line and give the streams back."""
        self._restore.close()
        self._live = None

    def phase(self, name: str) -> None:
        """Say what the run is doing now.

        Args:
            name: For example ``rollout``, ``training`` or ``evaluation``.
        """
        changed, self._phase = name != self._phase, name
        # In plain output only the phases before the first step are lines: a step may have five of them.
        if changed and self._live is None and len(self._marks) <= 1:
            self._print(f"  {name} ...")

    def update(self, step: int, metrics: Mapping[str, float]) -> None:
        """Report a finished step.

        Args:
            step: Its number.
            metrics: Numbers by name; those the line does not show are ignored. Of those missing, returns and successes
                in training are not shown, as no episode has ended; others keep their last value.
        """
        if step > self._step or not self._marks:
            self._marks.append((self._clock(), step))
        self._step = step
        for name in (name for label in _OF_EPISODES for name in _HEADLINES[label]):
            self._latest.pop(name, None)
        self._latest.update(metrics)
        if self._live is None:
            self._print(" | ".join(f"{label} {text}" for label, text in self._parts().items()))
        else:
            self._live.refresh()

    def message(self, text: str) -> None:
        """Print lines of text, as they are, above the progress line.

        Args:
            text: The text.
        """
        self._print(text)

    def show(self, table: Table) -> None:
        """Print a table, at most 80 columns wide."""
        self._rich.print(table, width=min(_MAX_WIDTH, self._rich.width))

    def table(self, metrics: Mapping[str, float], step: int) -> None:
        """Print a step's metrics, grouped by prefix, at most 80 columns wide.

        Args:
            metrics: Numbers by name.
            step: The step they belong to.
        """
        self.show(metric_table(metrics, f"{self._title}: step {step}/{self._total_steps}"))

    def summary(self, paths: Mapping[str, str | Path | None], metrics: Mapping[str, float]) -> None:
        """Print how the run ended and where its results are.

        Args:
            paths: Places by label (``checkpoint``, ``video``, ``TensorBoard logs``); those that are None are left out.
            metrics: Final numbers by name.
        """
        title = f"{self._title}: step {self._step}/{self._total_steps}"
        if self._says_end:
            shown = [f"{name} {format_number(value)}" for name, value in metrics.items() if name.startswith("eval/")]
            places = [str(place) for label, place in paths.items() if label == "metrics"]
            (self._file or sys.stdout).write(" | ".join([title, *shown, *places]) + "\n")
            return
        for line in summary_lines(title, paths, metrics):
            self._print(line)

    def eta_seconds(self) -> float | None:
        """Return the estimated seconds until the last step, from the recent steps; None before the first."""
        if len(self._marks) < 2:
            return None
        (start, first), (end, last) = self._marks[0], self._marks[-1]
        return max(0, self._total_steps - self._step) * (end - start) / (last - first)

    def _print(self, text: str) -> None:
        # soft_wrap: paths stay whole and can be copied; log files keep one line a step.
        self._rich.print(text, soft_wrap=True)

    def _parts(self) -> dict[str, str]:
        shown = {
            label: self._latest[name]
            for label, names in _HEADLINES.items()
            for name in [next((name for name in names if math.isfinite(self._latest.get(name, math.nan))), None)]
            if name is not None
        }
        return progress_parts(self._step, self._total_steps, shown, self.eta_seconds())

    def _describe(self) -> tuple[float, str]:
        """Return the done fraction and the text of the live line."""
        done = self._step / self._total_steps if self._total_steps else 1.0
        return done, "  ".join([*(f"{label} {text}" for label, text in self._parts().items()), f"[{self._phase}]"])


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() not in {"", "0", "false"}


@contextmanager
def _handlers_follow(streams: Mapping[IO[str], IO[str]]) -> Iterator[None]:
    """Point logging handlers from old streams to new ones, and back at the end."""
    loggers = [logging.getLogger(), *(logging.getLogger(name) for name in list(logging.root.manager.loggerDict))]
    moved: list[tuple[logging.StreamHandler[IO[str]], IO[str]]] = []
    for handler in {handler for logger in loggers for handler in logger.handlers}:
        # File handlers are stream handlers too, with a stream of their own.
        if isinstance(handler, logging.StreamHandler) and handler.stream in streams:
            moved.append((handler, handler.stream))
            handler.setStream(streams[handler.stream])
    try:
        yield
    finally:
        for handler, stream in moved:
            handler.setStream(stream)
