"""Asynchronous work waits, chains and gathers."""

import threading
from concurrent.futures import Future

import pytest

from rlinf.errors import CommTimeoutError
from rlinf.scheduler.comm.work import AsyncWork, finished, gather


def test_async_work_waits_chains_and_gathers() -> None:
    future = Future()
    converted = []
    work = AsyncWork(future, lambda value: converted.append(value) or value + 1, "the work")
    following = work.then(lambda value: value * 10)
    with pytest.raises(CommTimeoutError, match="the work did not end"):
        work.wait(timeout=0.01)
    threading.Timer(0.02, future.set_result, (1,)).start()
    assert following.wait(timeout=10) == 20
    assert work.wait() == 2
    assert work.done()
    assert converted == [1], "conversion runs once"
    assert gather([finished(1), work], sum, "both").wait() == 3
    failing = finished(1).then(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        gather([failing, AsyncWork(Future())], sum, "one fails").wait(timeout=10)
