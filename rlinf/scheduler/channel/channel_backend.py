"""Where a channel's queue is: on a channel host, or in this process."""

from __future__ import annotations

import contextlib
import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Protocol

from rlinf.errors import ClusterError, WorkerDiedError
from rlinf.scheduler.address import EndpointInfo
from rlinf.scheduler.channel.queue import ChannelQueue, Item
from rlinf.scheduler.comm.endpoint import Endpoint, Request
from rlinf.scheduler.comm.futures import Promise, process_deadlines
from rlinf.scheduler.comm.serialization import decode, encode
from rlinf.scheduler.comm.work import Claim
from rlinf.scheduler.runtime import current_runtime

_requests = itertools.count()
# A consumer that dies sooner after it took an item leaves it to another one.
_ACKNOWLEDGE_SECONDS = 0.001


class Backend(Protocol):
    """What a channel needs of its queue; every future ends exactly once."""

    def put(self, item: Any, *, key: Hashable, weight: float, wait: bool) -> tuple[Promise[Any], Claim]:
        """Add an item; the future ends when it is in the queue."""
        ...

    def get(
        self,
        *,
        key: Hashable,
        target_weight: float | None,
        wait: bool,
        producer: str | None = None,
        timeout: tuple[float, Callable[[], Exception]] | None = None,
    ) -> tuple[Promise[Any], Claim]:
        """Take items.

        Args:
            key: The queue within the channel.
            target_weight: Sum of weights to reach; None takes one item.
            wait: Whether to wait for items.
            producer: Uid of the process that feeds the key, where that is known.
            timeout: Seconds until the get ends with an error, and what makes that error.

        Returns:
            A future for what ``unpack`` takes, and the claim on the items: they stay the queue's until it is used.
        """
        ...

    def unpack(self, granted: Any) -> list[Any]:
        """Turn what a get's future ended with into the items."""
        ...

    def size(self, key: Hashable) -> int:
        """Return the number of items of a key."""
        ...

    def peek(self, key: Hashable) -> list[Any]:
        """Return the items of a key, which stay in the queue."""
        ...

    def close(self) -> None:
        """Refuse further puts."""
        ...


class LocalBackend:
    """A queue in this process: items are passed by reference."""

    def __init__(self, name: str, maxsize: int) -> None:
        self._queue: ChannelQueue[Any] = ChannelQueue(name, maxsize)
        self._lock = threading.RLock()
        self._deadlines = process_deadlines()

    def put(self, item: Any, *, key: Hashable, weight: float, wait: bool) -> tuple[Promise[Any], Claim]:
        """Add an item."""
        future: Promise[Any] = Promise()
        request = next(_requests)
        with self._lock:
            self._queue.put(request, "", key, item, weight=weight, wait=wait, answer=partial(_answer, future))
        return future, Claim(partial(self._give_up, future, request, key))

    def get(
        self,
        *,
        key: Hashable,
        target_weight: float | None,
        wait: bool,
        producer: str | None = None,
        timeout: tuple[float, Callable[[], Exception]] | None = None,
    ) -> tuple[Promise[Any], Claim]:
        """Take items."""
        future: Promise[Any] = Promise()
        request = next(_requests)
        with self._lock:
            answer = partial(_answer, future)
            self._queue.get(request, "", key, target_weight=target_weight, wait=wait, answer=answer)
        if timeout is not None and not future.done():
            seconds, late = timeout
            self._deadlines.add(future, seconds, partial(self._expire, future, request, key, late))
            future.add_done_callback(self._deadlines.remove)
        give_up = partial(self._give_up, future, request, key)
        return future, Claim(give_up, partial(self._acknowledge, request), self._deadlines.loop)

    def unpack(self, granted: Any) -> list[Any]:
        """Return the items."""
        return list(granted)

    def size(self, key: Hashable) -> int:
        """Return the number of items of a key."""
        with self._lock:
            return self._queue.size(key)

    def peek(self, key: Hashable) -> list[Any]:
        """Return the items of a key, which stay in the queue."""
        with self._lock:
            return [item.payload for item in self._queue.peek(key)]

    def close(self) -> None:
        """Refuse further puts."""
        with self._lock:
            self._queue.close()

    def _acknowledge(self, request: Hashable) -> None:
        with self._lock:
            self._queue.acknowledge("", request)

    def _give_up(self, future: Promise[Any], request: Hashable, key: Hashable) -> None:
        future.cancel()
        with self._lock:
            self._queue.cancel("", request, key)

    def _expire(self, future: Promise[Any], request: Hashable, key: Hashable, late: Callable[[], Exception]) -> None:
        if future.end(error=late()):
            self._give_up(future, request, key)


class HostedBackend:
    """A queue on a channel host."""

    def __init__(self, host: EndpointInfo, channel_id: str) -> None:
        self.host = host
        self.channel_id = channel_id
        self._endpoint = current_runtime().endpoint
        self._endpoint.notify(host, "channel_open", (channel_id,))
        self._passed_on = threading.Event()
        leave = (self._endpoint, host, channel_id, self._passed_on)
        weakref.finalize(self, _leave_soon, *leave).atexit = False
        # Requests whose items were taken: the next get says so to the host, or a message of its own does soon after.
        self._taken: deque[Hashable] = deque()
        self._will_acknowledge = False

    def put(self, item: Any, *, key: Hashable, weight: float, wait: bool) -> tuple[Promise[Any], Claim]:
        """Add an item."""
        arguments = (self.channel_id, key, weight, wait)
        request = self._endpoint.request(self.host, "channel_put", arguments, encode(item))
        return request, Claim(partial(self._give_up, request, key))

    def get(
        self,
        *,
        key: Hashable,
        target_weight: float | None,
        wait: bool,
        producer: str | None = None,
        timeout: tuple[float, Callable[[], Exception]] | None = None,
    ) -> tuple[Promise[Any], Claim]:
        """Take items."""
        arguments = (self.channel_id, key, target_weight, wait, producer, self._pop_taken())
        request = self._endpoint.request(self.host, "channel_get", arguments)
        if timeout is not None and not request.done():
            seconds, late = timeout
            self._endpoint.deadlines.add(request, seconds, partial(self._expire, request, key, late))
            request.add_done_callback(self._endpoint.deadlines.remove)
        give_up, take = partial(self._give_up, request, key), partial(self._acknowledge_soon, request.number)
        return request, Claim(give_up, take, self._endpoint.loop)

    def unpack(self, granted: Any) -> list[Any]:
        """Return the items."""
        items, start = [], 0
        for count in granted.value:
            items.append(decode(granted.frames[start : start + count]))
            start += count
        return items

    def size(self, key: Hashable) -> int:
        """Return the number of items of a key."""
        return int(self._endpoint.query(self.host, "channel_size", self.channel_id, key))

    def peek(self, key: Hashable) -> list[Any]:
        """Return copies of the items of a key, which stay in the queue."""
        return self.unpack(self._endpoint.request(self.host, "channel_peek", (self.channel_id, key)).result())

    def close(self) -> None:
        """Refuse further puts."""
        with contextlib.suppress(WorkerDiedError):  # the queue has gone with its host
            self._endpoint.query(self.host, "channel_close", self.channel_id)

    def pass_on(self) -> None:
        """Note that the handle was given to others: the queue waits for them when it is closed."""
        self._passed_on.set()

    def _give_up(self, request: Request, key: Hashable) -> None:
        request.cancel()
        if request.cancelled() or request.exception() is None:
            with contextlib.suppress(ClusterError):  # left the run: the host learns of that
                self._endpoint.notify(self.host, "channel_cancel", (self.channel_id, request.number, key))

    def _expire(self, request: Request, key: Hashable, late: Callable[[], Exception]) -> None:
        if request.give_up(late()):
            self._endpoint.notify(self.host, "channel_cancel", (self.channel_id, request.number, key))

    def _acknowledge_soon(self, request: Hashable) -> None:
        self._taken.append(request)
        if not self._will_acknowledge:
            self._will_acknowledge = True
            loop = self._endpoint.loop
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(loop.call_later, _ACKNOWLEDGE_SECONDS, self._acknowledge)

    def _acknowledge(self) -> None:
        self._will_acknowledge = False
        taken = self._pop_taken()
        if taken:
            self._endpoint.notify(self.host, "channel_ack", (self.channel_id, taken))

    def _pop_taken(self) -> tuple[Hashable, ...]:
        taken = []
        with contextlib.suppress(IndexError):  # another thread was faster
            while self._taken:
                taken.append(self._taken.popleft())
        return tuple(taken)


def _leave_soon(endpoint: Endpoint, host: EndpointInfo, channel_id: str, passed_on: threading.Event) -> None:
    """Notify the host that a handle is gone; called by a finalizer, anywhere."""

    def leave() -> None:
        with contextlib.suppress(ClusterError):  # who has left the run holds no handles
            endpoint.notify(host, "channel_leave", (channel_id, passed_on.is_set()))

    with contextlib.suppress(RuntimeError):  # the loop has ended
        endpoint.loop.call_soon_threadsafe(leave)


def _answer(future: Promise[Any], items: list[Item[Any]], error: BaseException | None) -> None:
    future.end([item.payload for item in items], error)
