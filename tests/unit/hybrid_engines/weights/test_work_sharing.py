"""Threads share numbers: each is worked on once, and what fails on any of them is raised."""

from __future__ import annotations

import threading

import pytest

from rlinf.hybrid_engines.weights import work_sharing
from rlinf.hybrid_engines.weights.work_sharing import share


@pytest.fixture(autouse=True)
def three_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this machine have three."""
    monkeypatch.setattr(work_sharing.os, "sched_getaffinity", lambda _: range(3))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 50])
def test_every_number_is_worked_on_once(count: int) -> None:
    seen: list[int] = []
    share(seen.append, count)
    assert sorted(seen) == list(range(count))


def test_all_cores_work_at_the_same_time() -> None:
    together, threads = threading.Barrier(3, timeout=60), set()

    def work(number: int) -> None:
        if number < 3:
            together.wait()
        threads.add(threading.get_ident())

    share(work, 12)
    assert len(threads) == 3
    assert threading.get_ident() in threads


@pytest.mark.parametrize("is_caller", [True, False])
def test_what_fails_is_raised(is_caller: bool) -> None:
    caller, together = threading.get_ident(), threading.Barrier(3, timeout=60)

    def work(number: int) -> None:
        if number < 3:
            together.wait()
        if (threading.get_ident() == caller) == is_caller:
            raise ValueError("no such weight")

    with pytest.raises(ValueError, match="no such weight"):
        share(work, 30)


@pytest.mark.parametrize(("cores", "count"), [(1, 100), (3, 7), (3, 0)])
def test_little_is_done_without_threads(cores: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_sharing.os, "sched_getaffinity", lambda _: range(cores))
    monkeypatch.setattr(work_sharing, "ThreadPoolExecutor", None)
    seen: list[int] = []
    share(seen.append, count, min_each=4)
    assert seen == list(range(count))


def test_there_are_never_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_sharing.os, "sched_getaffinity", lambda _: range(100))
    together, threads = threading.Barrier(4, timeout=60), set()

    def work(number: int) -> None:
        if number < 4:
            together.wait()
        threads.add(threading.get_ident())

    share(work, 400)
    assert len(threads) == 4
