"""A process's place in the run: requests with replies, one-way notices, and the handlers that serve them.

Every request ends with exactly one of: a reply, the other side's error, or the error of the other side's death. An
error in a handler goes back to the caller; the thread that serves messages never ends before the endpoint is closed.
"""

from __future__ import annotations

import itertools
import pickle
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from rlinf.errors import ClusterError, RLinfError
from rlinf.scheduler.address import EndpointInfo
from rlinf.scheduler.comm.futures import Promise
from rlinf.scheduler.comm.serialization import Buffer
from rlinf.scheduler.comm.transport import Transport
from rlinf.utils.logging import get_logger

_REQUEST, _NOTICE, _REPLY, _ERROR = range(4)


@dataclass(frozen=True)
class Reply:
    """The answer to a request: a small value and, where there is one, an opaque payload."""

    value: Any
    frames: list[memoryview]


@dataclass(frozen=True)
class Call:
    """A request or notice as its handler sees it.

    Attributes:
        endpoint: The endpoint that received it.
        sender: Where it came from.
        request_id: Number of the request, or None for a notice.
        args: Arguments of the operation.
        frames: Opaque payload.
    """

    endpoint: Endpoint
    sender: EndpointInfo
    request_id: int | None
    args: tuple[Any, ...]
    frames: list[memoryview]

    def reply(self, value: Any = None, frames: Sequence[Buffer] = ()) -> None:
        """Answer the request; a notice has nobody to answer to."""
        if self.request_id is not None:
            self.endpoint.send(self.sender, (_REPLY, self.request_id, value), frames)

    def fail(self, error: BaseException) -> None:
        """Answer the request with an error."""
        if self.request_id is not None:
            self.endpoint.send(self.sender, (_ERROR, self.request_id, _picklable(error)), ())


Handler = Callable[[Call], None]


class Endpoint:
    """Requests, replies and notices over one transport.

    Args:
        namespace: Name of the run.
        node_id: Ray's id of this node.
        keys: Public and secret key of the run.
        listen_ip: Address of the interface for other nodes, or None in a run on one node.
    """

    def __init__(self, *, namespace: str, node_id: str, keys: tuple[bytes, bytes], listen_ip: str | None) -> None:
        self._handlers: dict[str, Handler] = {}
        self._pending: dict[int, tuple[str, Future[Reply]]] = {}
        self._dead: dict[str, BaseException] = {}
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._closed = False
        self._transport = Transport(
            namespace=namespace, node_id=node_id, keys=keys, listen_ip=listen_ip, on_message=self._receive
        )
        self.info = self._transport.info
        self.loop = self._transport.loop

    def serve(self, operation: str, handler: Handler) -> None:
        """Call ``handler`` on the endpoint's thread for each message with this operation."""
        self._handlers[operation] = handler

    def request(
        self, peer: EndpointInfo, operation: str, args: tuple[Any, ...] = (), frames: Sequence[Buffer] = ()
    ) -> Future[Reply]:
        """Send a request; the future ends with the reply, the other side's error, or the error of its death."""
        future: Future[Reply] = Promise()
        number = next(self._numbers)
        with self._lock:
            error = self._dead.get(peer.uid) or (_closed_error() if self._closed else None)
            if error is None:
                self._pending[number] = (peer.uid, future)
        if error is not None:
            future.set_exception(error)
            return future
        try:
            self.send(peer, (_REQUEST, number, operation, args, self.info), frames)
        except Exception as failure:
            with self._lock:
                self._pending.pop(number, None)
            if not isinstance(failure, RLinfError):
                raise
            future.set_exception(failure)
        return future

    def ask(self, peer: EndpointInfo, operation: str, *args: Any, timeout: float | None = None) -> Any:
        """Send a request and wait for the value of its reply; not from the endpoint's own thread."""
        assert not self._transport.on_own_thread(), "waiting here would block the thread that receives the reply"
        return self.request(peer, operation, args).result(timeout=timeout).value

    def notify(
        self, peer: EndpointInfo, operation: str, args: tuple[Any, ...] = (), frames: Sequence[Buffer] = ()
    ) -> None:
        """Send a message that gets no reply."""
        self.send(peer, (_NOTICE, None, operation, args, self.info), frames)

    def send(self, peer: EndpointInfo, header: tuple[Any, ...], frames: Sequence[Buffer]) -> None:
        """Send a header of plain values and a payload; what is sent to a dead peer is dropped."""
        if peer.uid not in self._dead:
            try:
                self._transport.send(peer, [pickle.dumps(header, protocol=5), *frames])
            except ClusterError:
                if peer.uid not in self._dead:  # it may have died in between
                    raise

    def peer_died(self, uid: str, error: BaseException) -> None:
        """Fail all requests that wait for this peer, now and later."""
        with self._lock:
            self._dead[uid] = error
            lost = [number for number, (peer, _) in self._pending.items() if peer == uid]
            futures = [self._pending.pop(number)[1] for number in lost]
        for future in futures:
            _resolve(future, error=error)
        self._transport.forget(uid)

    def is_dead(self, uid: str) -> BaseException | None:
        """Return the error of this peer's death, or None while it lives."""
        return self._dead.get(uid)

    def close(self) -> None:
        """Leave the run: pending requests fail, the thread ends."""
        with self._lock:
            self._closed = True
            futures = [future for _, future in self._pending.values()]
            self._pending.clear()
        for future in futures:
            _resolve(future, error=_closed_error())
        self._transport.close()

    def _receive(self, frames: list[memoryview]) -> None:
        header = pickle.loads(frames[0])
        kind, number = header[0], header[1]
        if kind in {_REPLY, _ERROR}:
            with self._lock:
                entry = self._pending.pop(number, None)
            if entry is None:
                return
            if kind == _REPLY:
                _resolve(entry[1], value=Reply(header[2], frames[1:]))
            else:
                _resolve(entry[1], error=header[2])
            return
        _, _, operation, args, sender = header
        self._handle(operation, Call(self, sender, number, args, frames[1:]))

    def _handle(self, operation: str, call: Call) -> None:
        handler = self._handlers.get(operation)
        try:
            if handler is None:
                raise ClusterError(f"Endpoint {self.info.uid} does not serve '{operation}'.")
            handler(call)
        except Exception as error:  # noqa: BLE001 - the boundary: one bad message must not end the thread that serves all
            if call.request_id is None:
                get_logger(__name__).exception("Handling '%s' from %s failed.", operation, call.sender.uid)
            else:
                call.fail(error)


def _resolve(future: Future[Reply], *, value: Reply | None = None, error: BaseException | None = None) -> None:
    if not future.set_running_or_notify_cancel():
        return
    if error is not None:
        future.set_exception(error)
    else:
        assert value is not None
        future.set_result(value)


def _closed_error() -> ClusterError:
    return ClusterError("The cluster is closed.")


def _picklable(error: BaseException) -> BaseException:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - any failure to travel means that only its text can
        return RLinfError(f"{type(error).__name__}: {error}")
    return error
