"""What this process waits for at this moment: for the watchdog's lines and ``rlinf status``."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any


class Waiting:
    """Notes a wait while it lasts: ``with Waiting("EnvGroup:0 waits for ..."): ...``.

    Args:
        what: Who waits for whom, or a function that tells it: most waits end before anybody asks.
        since: When it began, as ``time.time``; None is now.
    """

    __slots__ = ("since", "thread", "what")

    def __init__(self, what: str | Callable[[], str], since: float | None = None) -> None:
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
    told = [(wait.what if isinstance(wait.what, str) else wait.what(), wait) for wait in waits]
    return [{"what": what, "since": wait.since, "thread": wait.thread} for what, wait in told if what]


_waits: dict[int, Waiting] = {}
