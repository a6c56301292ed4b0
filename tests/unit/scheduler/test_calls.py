"""Replies of a worker's methods: one that cannot be sent is an error of the caller, and the worker serves on."""

import asyncio
import errno
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np
import pytest

from rlinf.errors import WorkerError
from rlinf.scheduler.address import WorkerAddress, WorkerIdentity
from rlinf.scheduler.calls import CallServer
from rlinf.scheduler.comm.endpoint import Endpoint
from rlinf.scheduler.comm.serialization import encode
from rlinf.scheduler.comm.transport import new_keys, remove_socket_folder
from rlinf.scheduler.results import WorkerGroupFuncResult

ADDRESS = WorkerAddress("service", 0)
LARGE_BYTES = 1 << 20


class BrokenMessageError(RuntimeError):
    def __str__(self) -> str:
        raise ValueError("no text")


class HostileToPickleError(RuntimeError):
    def __reduce__(self) -> NoReturn:
        raise SystemExit(3)


class Service:
    def add(self, value: Any) -> Any:
        return value + 1

    def fail(self, kind: Any) -> NoReturn:
        raise kind("words")

    async def fail_async(self, kind: Any) -> NoReturn:
        raise kind("words")

    def large(self) -> np.ndarray:
        return np.zeros(LARGE_BYTES, np.uint8)

    async def large_async(self) -> np.ndarray:
        return np.zeros(LARGE_BYTES, np.uint8)

    def lock(self) -> threading.Lock:
        return threading.Lock()

    async def lock_async(self) -> threading.Lock:
        return threading.Lock()

    async def loop_kind(self) -> str:
        return type(asyncio.get_running_loop()).__module__


@pytest.fixture
def served() -> Iterator[tuple[Callable[..., Any], Endpoint]]:
    """An endpoint that calls, and one whose process serves the methods of ``Service`` on a thread."""
    namespace, keys = uuid.uuid4().hex[:8], new_keys()
    caller, server = (Endpoint(namespace=namespace, node_id="n0", keys=keys, listen_ip=None) for _ in range(2))
    calls = CallServer(Service(), WorkerIdentity(ADDRESS, 1, 0, {}), server.promise)
    server.serve("call", calls.accept)
    server.serve("shutdown", calls.stop)
    thread = threading.Thread(target=calls.serve)
    thread.start()

    def call(method: Any, *args: Any) -> Any:
        future = caller.request(server.info, "call", (method,), encode((args, {})))
        return WorkerGroupFuncResult(method, [(ADDRESS, future)]).wait(timeout=20)[0]

    yield call, server
    caller.notify(server.info, "shutdown")
    thread.join(timeout=20)
    assert not thread.is_alive()
    for endpoint in (caller, server):
        endpoint.close()
    remove_socket_folder(namespace)


def test_async_methods_run_in_the_loop_that_costs_least(served: tuple[Callable[..., Any], Endpoint]) -> None:
    pytest.importorskip("uvloop")
    call, _ = served
    assert call("loop_kind") == "uvloop"


@pytest.mark.parametrize("method", ["fail", "fail_async"])
def test_an_error_whose_message_raises_reaches_the_caller(
    served: tuple[Callable[..., Any], Endpoint], method: str
) -> None:
    call, _ = served
    with pytest.raises(WorkerError, match=rf"service:0 .* failed in {method}\(\): BrokenMessageError"):
        call(method, BrokenMessageError)
    assert call("add", 1) == 2


@pytest.mark.parametrize("method", ["fail", "fail_async"])
def test_an_error_that_ends_its_own_pickling_reaches_the_caller(
    served: tuple[Callable[..., Any], Endpoint], method: str
) -> None:
    call, _ = served
    with pytest.raises(WorkerError, match="HostileToPickleError: words"):
        call(method, HostileToPickleError)
    assert call("add", 1) == 2


@pytest.mark.parametrize("method", ["lock", "lock_async"])
def test_a_result_that_cannot_be_pickled_is_an_error(served: tuple[Callable[..., Any], Endpoint], method: str) -> None:
    call, _ = served
    with pytest.raises(WorkerError, match=r"cannot pickle '_thread\.lock'"):
        call(method)
    assert call("add", 1) == 2


@pytest.mark.parametrize("method", ["large", "large_async"])
def test_a_result_for_which_no_segment_can_be_opened_is_an_error(
    served: tuple[Callable[..., Any], Endpoint], method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, server = served
    assert len(call(method)) == LARGE_BYTES

    def refuse(buffers: Any) -> NoReturn:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(server.segments, "write", refuse)
        with pytest.raises(WorkerError, match="Too many open files"):
            call(method)
        assert call("add", 1) == 2
    assert len(call(method)) == LARGE_BYTES
