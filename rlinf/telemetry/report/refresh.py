"""Keeps the page of a run up to date while it runs."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from pathlib import Path

from rlinf.telemetry.report.page import INSTALL_COMMAND, write_report
from rlinf.telemetry.report.run_folder import RunFolder
from rlinf.telemetry.rundir import REPORT_FILE
from rlinf.utils.logging import get_logger

# A page is written once a minute at most, and takes at most a hundredth of the run's time.
_MIN_SECONDS = 60.0
_MAX_SHARE = 0.01


class RunReport:
    """Writes ``<folder>/report.html``; if that fails, the run goes on.

    Args:
        folder: The experiment's folder.
        is_wanted: ``runner.logger.report``.
        clock: Seconds from any fixed point; for tests.

    Attributes:
        path: The page; None where none is written.
    """

    def __init__(self, folder: Path, *, is_wanted: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._has_warned = False
        self._next = clock() + _MIN_SECONDS
        self.path: Path | None = folder / REPORT_FILE if is_wanted else None
        if is_wanted and importlib.util.find_spec("plotly") is None:
            self.path = None
            get_logger(__name__).info(
                "No %s is written, as plotly is not installed: %s, or runner.logger.report=false to do without.",
                REPORT_FILE,
                INSTALL_COMMAND,
            )

    def refresh(self) -> None:
        """Write the page if it has not been written for a while."""
        if self.path is not None and self._clock() >= self._next:
            self.write(is_last=False)

    def write(self, *, is_last: bool = True) -> None:
        """Write the page; until the run has ended, a browser that shows it reads it again now and then."""
        if self.path is None:
            return
        begin = self._clock()
        try:
            reload_seconds = None if is_last else round(_MIN_SECONDS)
            write_report([RunFolder.read(self._folder)], self.path, reload_seconds=reload_seconds)
        except Exception as error:  # noqa: BLE001 - a page about a run must not end it
            if not self._has_warned:
                get_logger(__name__).warning(
                    "%s cannot be written (%s: %s); the run goes on. runner.logger.report=false does without.",
                    self.path,
                    type(error).__name__,
                    error,
                )
            self._has_warned = True
        now = self._clock()
        self._next = now + max(_MIN_SECONDS, (now - begin) / _MAX_SHARE)
