"""Spans of messages, channels and waits, with an arrow from each send to its receive."""

from __future__ import annotations

import functools
from collections import defaultdict
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


# Incarnation of workers that were launched again since this process began; it is 1 for all others.
_incarnations: dict[str, int] = {}


def peer_started(address: WorkerAddress) -> None:
    """Count messages to and from this worker anew, if it replaces an earlier one."""
    if address.incarnation > 1:
        _incarnations[str(address)] = address.incarnation


class MessageTrace:
    """Numbers one worker's messages, so that a send and its receive are known to belong together.

    Messages from one worker to another with one tag arrive in order, so both sides count the same. Between workers
    that were both launched again, arrows may be missing: neither need know the other's incarnation.

    Args:
        address: The worker.
    """

    def __init__(self, address: WorkerAddress) -> None:
        self._me = (str(address), max(address.incarnation, 1))
        self._sent: dict[tuple[str, int, Hashable], int] = defaultdict(int)
        self._received: dict[tuple[str, int, Hashable], int] = defaultdict(int)

    def sending(self, tag: Hashable, *targets: tuple[str, int | Sequence[int]]) -> AbstractContextManager[Any]:
        """Return the span of a send.

        Args:
            tag: The message's tag.
            *targets: Group and rank or ranks of the receivers.
        """
        if trace.current_tracer() is None:
            return trace.NOTHING
        names = [
            f"{group}:{rank}" for group, ranks in targets for rank in ([ranks] if isinstance(ranks, int) else ranks)
        ]
        peers = [(name, _incarnations.get(name, 1)) for name in names]
        keys = tuple((self._me, peer, repr(tag), self._count(self._sent, peer, tag)) for peer in peers)
        return trace.span("send", "comm", ("s", keys), to=", ".join(names), tag=tag)

    def receiving(self, group: str, rank: int, tag: Hashable) -> Label | None:
        """Return what the wait for a message is called in the trace."""
        if trace.current_tracer() is None:
            return None
        source = f"{group}:{rank}"
        peer = (source, _incarnations.get(source, 1))
        key = (peer, self._me, repr(tag), self._count(self._received, peer, tag))
        return "recv", "comm", ("f", (key,)), {"from": source, "tag": tag}

    def _count(self, counts: dict[tuple[str, int, Hashable], int], peer: tuple[str, int], tag: Hashable) -> int:
        key = (*peer, tag)
        counts[key] += 1
        return counts[key]


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
        # Only the first wait is the arrival; asking again costs nothing and is not shown.
        work.label = None
        name, category, flow, details = label
        return Span(tracer, name, category, details, flow)
    return trace.NOTHING if work.done() else trace.span("wait", "comm", on=work.describe)
