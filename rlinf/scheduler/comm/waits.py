"""What this process waits for at this moment: for the watchdog's lines and ``rlinf status``."""

from __future__ import annotations

import threading
import time
from typing import Any


class Waiting:
    """Notes a wait while it lasts: ``with Waiting("EnvGroup:0 waits for ..."): ...``.

    Args:
        what: Who waits for whom.
        since: When it began, as ``time.time``; None is now.
    """

    __slots__ = ("since", "thread", "what")

    def __init__(self, what: str, since: float | None = None) -> None:
        self.what = what
        self.since = time.time() if since is None else since
        self.thread = threading.current_thread().name

    def __enter__(self) -> None:
        _waits[id(self)] = self

    def __exit__(self, *exc: object) -> None:
        _waits.pop(id(self), None)


def current_waits() -> list[dict[str, Any]]:
    """Return what each thread and task of this process waits for: ``what``, ``since`` and ``thread``, oldest first."""
    waits = sorted(list(_waits.values()), key=lambda wait: wait.since)
    return [{"what": wait.what, "since": wait.since, "thread": wait.thread} for wait in waits if wait.what]


_waits: dict[int, Waiting] = {}
