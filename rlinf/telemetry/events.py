"""What happens in a run between its steps: how it starts and ends, restarts, notes and warnings; one line each."""

from __future__ import annotations

import json
import logging
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Literal

from rlinf.utils.files import naming_file
from rlinf.utils.logging import get_logger

EVENTS_FILE = "events.jsonl"
EventKind = Literal["start", "note", "restart", "warning", "end"]
# A warning that comes with every message of a run must not fill the disk.
_MAX_WARNINGS = 1000


class EventLog:
    """Appends to ``<folder>/events.jsonl``: time, kind, step and text of each event.

    As a context manager it also records the warnings and errors that this process logs meanwhile.

    Args:
        folder: The experiment's folder, which exists.

    Attributes:
        step: The step that the run has reached; goes into every event.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / EVENTS_FILE
        self._exit = ExitStack()
        self.step = 0

    def add(self, kind: EventKind, text: str) -> None:
        """Append an event.

        Args:
            kind: What sort of event.
            text: What happened.
        """
        record = {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "kind": kind, "step": self.step, "text": text}
        with naming_file(self._path), open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def __enter__(self) -> EventLog:
        """Begin to record warnings."""
        handler, logger = _Warnings(self), get_logger()
        logger.addHandler(handler)
        self._exit.callback(logger.removeHandler, handler)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Record no more warnings."""
        self._exit.close()


class _Warnings(logging.Handler):
    """Records what is logged as a warning or worse."""

    def __init__(self, events: EventLog) -> None:
        super().__init__(logging.WARNING)
        self._events = events
        self._count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self._count += 1
        try:
            if self._count < _MAX_WARNINGS:
                self._events.add("warning", record.getMessage())
            elif self._count == _MAX_WARNINGS:
                self._events.add("warning", f"After {_MAX_WARNINGS} warnings no more are recorded here.")
        except (OSError, ValueError, TypeError):
            # As logging's own handlers do: what is wrong with a log line must not end the program.
            self.handleError(record)
