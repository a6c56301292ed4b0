"""What Ray does while a run starts is waited for aloud, in limits, and so that signals end the wait."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from rlinf.errors import ClusterError
from rlinf.scheduler.comm import work
from rlinf.scheduler.ray_calls import results_of
from rlinf.utils.logging import get_logger


class Call:
    """As much of a reference as is asked: its future."""

    def __init__(self, after: float, value: Any = None) -> None:
        self._future: Future[Any] = Future()
        if after >= 0:
            end = self._future.set_exception if isinstance(value, Exception) else self._future.set_result
            threading.Timer(after, end, (value,)).start()

    def future(self) -> Future[Any]:
        return self._future


class Alarm(BaseException):
    """What a signal's handler raises."""


@pytest.fixture
def alarm() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_results_come_in_the_order_of_the_calls() -> None:
    assert results_of([Call(0.2, "late"), Call(0.0, "early")], "two") == ["late", "early"]  # type: ignore[list-item]


def test_what_a_call_raises_is_raised() -> None:
    with pytest.raises(KeyError, match="broken"):
        results_of([Call(0.0, 1), Call(0.1, KeyError("broken"))], "two")  # type: ignore[list-item]


def test_a_process_that_never_starts_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLINF_CLUSTER_TIMEOUT_SECONDS", "0.3")
    monkeypatch.setattr(work, "WATCHDOG_SECONDS", 0.1)
    records: list[str] = []
    logger = get_logger(work.__name__)
    logger.addFilter(lambda record: record.levelno == logging.WARNING and records.append(record.getMessage()) or True)
    with pytest.raises(ClusterError, match=r"not started the run's manager within 0\.3 s.*raylet\.out"):
        results_of([Call(0.0), Call(-1)], "the run's manager")  # type: ignore[list-item]
    logger.filters.clear()
    assert any("Still waiting" in line and "the run's manager" in line for line in records)


def test_calls_share_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these comes soon enough after the one before it, and the last too late."""
    monkeypatch.setenv("RLINF_CLUSTER_TIMEOUT_SECONDS", "1")
    with pytest.raises(ClusterError, match="not started a process on each node within 1 s"):
        results_of([Call(0.7, 1), Call(1.4, 2), Call(2.1, 3)], "a process on each node")  # type: ignore[list-item]


def test_what_has_come_is_returned_where_no_time_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLINF_CLUSTER_TIMEOUT_SECONDS", "0")
    known = Call(-1)
    known.future().set_result("known")
    assert results_of([known], "a process on each node") == ["known"]  # type: ignore[list-item]


def test_the_exception_of_a_signal_ends_the_wait(alarm: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """In ``ray.get`` it would be lost, and a test that has run out of time would wait on."""
    monkeypatch.setenv("RLINF_CLUSTER_TIMEOUT_SECONDS", "30")
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    with pytest.raises(Alarm):
        results_of([Call(-1)], "nobody")  # type: ignore[list-item]
