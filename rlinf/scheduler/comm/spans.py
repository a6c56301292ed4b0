"""Spans of messages, channels and waits, with an arrow from each send to its receive."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any, ParamSpec, TypeVar, cast

from rlinf.scheduler.address import WorkerAddress
from rlinf.telemetry import trace
from rlinf.telemetry.trace import Flow, Span

P = ParamSpec("P")
R = TypeVar("R")

# Name, category, arrow and details of a wait.
Label = tuple[str, str, "Flow | None", dict[str, Any]]


# Tags that count messages (a step number, say) would otherwise be kept without end.
_MAX_STREAMS = 4096
# Incarnation of workers that were launched again since this process began; it is 1 for all others.
_incarnations: dict[str, int] = {}


def peer_started(address: WorkerAddress) -> None:
    """Count messages to and from this worker anew, if it replaces an earlier one."""
    if address.incarnation > 1:
        _incarnations[str(address)] = address.incarnation


class _Stream:
    """Messages to or from one worker with one tag."""

    __slots__ = ("details", "key", "number", "peer_incarnation", "peer_name")

    def __init__(self, key: Hashable, peer: tuple[str, int], details: dict[str, Any]) -> None:
        self.key = key
        self.peer_name, self.peer_incarnation = peer
        self.details = details
        self.number = 0

    def next_key(self) -> Hashable:
        self.number += 1
        return self.key, self.number


class MessageTrace:
    """Numbers one worker's messages, so that a send and its receive are known to belong together.

    Messages from one worker to another with one tag arrive in order, so both sides count the same. Between workers
    that were both launched again, arrows may be missing: neither need know the other's incarnation.

    Args:
        address: The worker.
    """

    def __init__(self, address: WorkerAddress) -> None:
        self._me = (str(address), max(address.incarnation, 1))
        # Least recently used first.
        self._sent: dict[tuple[str, int, Hashable], _Stream] = {}
        self._received: dict[tuple[str, int, Hashable], _Stream] = {}
        self._lock = threading.Lock()

    def sending(self, tag: Hashable, *targets: tuple[str, int | Sequence[int]]) -> AbstractContextManager[Any]:
        """Return the span of a send.

        Args:
            tag: The message's tag.
            *targets: Group and rank or ranks of the receivers.
        """
        tracer = trace.current_tracer()
        if tracer is None:
            return trace.NOTHING
        pairs = [(group, rank) for group, ranks in targets for rank in ([ranks] if isinstance(ranks, int) else ranks)]
        if not pairs:  # a broadcast to oneself
            return trace.NOTHING
        with self._lock:
            streams = [self._stream(group, rank, tag, sends=True) for group, rank in pairs]
            keys = tuple(stream.next_key() for stream in streams)
        details = streams[0].details
        if len(streams) > 1:
            details = {**details, "to": ", ".join(stream.peer_name for stream in streams)}
        return Span(tracer, "send", "comm", details, ("s", keys))

    def receiving(self, group: str, rank: int, tag: Hashable) -> Label | None:
        """Return what the wait for a message is called in the trace."""
        if trace.current_tracer() is None:
            return None
        with self._lock:
            stream = self._stream(group, rank, tag, sends=False)
            key = stream.next_key()
        return "recv", "comm", ("f", (key,)), stream.details

    def _stream(self, group: str, rank: int, tag: Hashable, *, sends: bool) -> _Stream:
        streams = self._sent if sends else self._received
        stream = streams.pop((group, rank, tag), None)
        if stream is None or stream.peer_incarnation != _incarnations.get(stream.peer_name, 1):
            name = f"{group}:{rank}"
            peer = (name, _incarnations.get(name, 1))
            ends = (self._me, peer) if sends else (peer, self._me)
            stream = _Stream((*ends, repr(tag)), peer, {"to" if sends else "from": name, "tag": _plain(tag)})
            if len(streams) >= _MAX_STREAMS:
                del streams[next(iter(streams))]
        streams[group, rank, tag] = stream
        return stream


def _plain(tag: Hashable) -> str | int | None:
    """Return the tag as it is shown; one of the user's own kind may not be loadable in the driver."""
    return tag if isinstance(tag, (str, int, type(None))) else str(tag)


def channel_label(operation: str, channel: str, key: Hashable) -> Label | None:
    """Return what the wait for a channel is called in the trace."""
    if trace.current_tracer() is None:
        return None
    return operation, "channel", None, {"channel": channel, "key": key}


def traced_wait(wait: Callable[P, R]) -> Callable[P, R]:
    """Record a wait for an ``AsyncWork``: under its label, or, if it has none and has not ended yet, as ``wait``."""

    @functools.wraps(wait)
    def traced(*args: P.args, **kwargs: P.kwargs) -> R:
        with _waiting(args[0]):
            return wait(*args, **kwargs)

    return traced


def traced_async_wait(wait: Callable[P, R]) -> Callable[P, R]:
    """As ``traced_wait``, for a wait on an event loop."""

    @functools.wraps(wait)
    async def traced(*args: P.args, **kwargs: P.kwargs) -> Any:
        with _waiting(args[0]):
            return await cast(Any, wait(*args, **kwargs))

    return cast(Callable[P, R], traced)


def _waiting(work: Any) -> AbstractContextManager[Any]:
    tracer = trace.current_tracer()
    if tracer is None:
        return trace.NOTHING
    label: Label | None = work.label
    if label is not None:
        # Only the first wait is the arrival; a further wait costs nothing and is not shown.
        work.label = None
        name, category, flow, details = label
        return Span(tracer, name, category, details, flow)
    return trace.NOTHING if work.done() else trace.span("wait", "comm", on=work.describe)
