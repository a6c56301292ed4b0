"""What a process of a run does at this moment, told to whoever asks over its endpoint.

The endpoint's thread answers, so also while the worker's methods are blocked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from rlinf.errors import RLinfError
from rlinf.scheduler.address import EndpointInfo
from rlinf.scheduler.comm.endpoint import Call, Endpoint, Reply
from rlinf.scheduler.comm.futures import wait_any
from rlinf.scheduler.comm.waits import current_waits

STATUS = "status"

# Who has not answered by then computes without letting go of Python's lock, or is stopped.
ANSWER_SECONDS = 3.0


class Introspection:
    """Answers what this process does.

    Args:
        endpoint: Where the question arrives.
        label: Name of the process.
    """

    def __init__(self, endpoint: Endpoint, label: str) -> None:
        self._label = label
        self._parts: dict[str, Callable[[], Any]] = {}
        endpoint.serve(STATUS, self._answer)

    def add(self, name: str, describe: Callable[[], Any]) -> None:
        """Report what ``describe`` returns, plain values only, under ``name``; called on the endpoint's thread."""
        self._parts[name] = describe

    def report(self) -> dict[str, Any]:
        """Return the report: ``label``, ``pid``, ``waits`` and the added parts."""
        report: dict[str, Any] = {"label": self._label, "pid": os.getpid(), "waits": current_waits()}
        for name, describe in self._parts.items():
            report[name] = describe()
        return report

    def _answer(self, call: Call) -> None:
        call.reply(self.report())


def ask_reports(endpoint: Endpoint, processes: Sequence[EndpointInfo]) -> dict[str, dict[str, Any]]:
    """Ask processes what they do; not from the endpoint's own thread.

    Returns:
        The reports by uid, of those that answered within ``ANSWER_SECONDS``.
    """
    pending: dict[str, Future[Reply]] = {process.uid: endpoint.request(process, STATUS) for process in processes}
    deadline = time.monotonic() + ANSWER_SECONDS
    reports: dict[str, dict[str, Any]] = {}
    for uid, future in pending.items():
        wait_any([future], max(deadline - time.monotonic(), 0.0))
        try:
            reports[uid] = future.result(timeout=0).value
        except (FutureTimeoutError, RLinfError):
            continue
    return reports


def summarize(report: dict[str, Any] | None) -> str:
    """Return in one line what a process does."""
    if report is None:
        return "does not answer"
    running = [f"runs {call['method']}() since {clock(call['since'])}" for call in report.get("calls", ())]
    waiting = [f"{wait['what']} (since {clock(wait['since'])})" for wait in report["waits"]]
    return "; ".join([*running, *waiting]) or "idle"


def clock(seconds: float) -> str:
    """Return a time of day for people."""
    return time.strftime("%H:%M:%S", time.localtime(seconds))
