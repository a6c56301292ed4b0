"""Where a channel's queue is: on a channel host, or in this process."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Hashable
from concurrent.futures import Future
from typing import Any, Protocol

from rlinf.scheduler.address import EndpointInfo
from rlinf.scheduler.channel.queue import ChannelQueue, Item
from rlinf.scheduler.comm.endpoint import Reply
from rlinf.scheduler.comm.futures import Promise
from rlinf.scheduler.comm.serialization import decode, encode
from rlinf.scheduler.runtime import current_runtime

_requests = itertools.count()
# Held while it is decided who ends a future: a time-out or what was waited for.
_ending = threading.Lock()
# A consumer that dies sooner after it got an item leaves it to another one.
_ACKNOWLEDGE_SECONDS = 0.001


class Backend(Protocol):
    """What a channel needs of its queue; every future ends exactly once."""

    def put(self, item: Any, *, key: Hashable, weight: float, wait: bool) -> Future[Any]:
        """Add an item; the future ends when it is in the queue."""
        ...

    def get(
        self, *, key: Hashable, target_weight: float | None, wait: bool, producer: str | None = None
    ) -> tuple[Hashable, Future[Any]]:
        """Take items; returns the request's name and a future for what ``unpack`` takes."""
        ...

    def unpack(self, granted: Any) -> list[Any]:
        """Turn what a get's future ended with into the items."""
        ...

    def cancel(self, request: Hashable) -> None:
        """Stop waiting; what the request was granted meanwhile goes back to the queue."""
        ...

    def expire(self, request: Hashable, future: Future[Any], seconds: float, error: Exception) -> None:
        """End a get with ``error`` if it has not ended after ``seconds``; no item is lost."""
        ...

    def size(self, key: Hashable) -> int:
        """Return the number of items of a key."""
        ...

    def close(self) -> None:
        """Refuse further puts."""
        ...


class LocalBackend:
    """A queue in this process: items are passed by reference."""

    def __init__(self, name: str, maxsize: int) -> None:
        self._queue: ChannelQueue[Any] = ChannelQueue(name, maxsize)
        self._lock = threading.RLock()

    def put(self, item: Any, *, key: Hashable, weight: float, wait: bool) -> Future[Any]:
        """Add an item."""
        future: Future[Any] = Promise()
        with self._lock:
            self._queue.put(
                next(_requests),
                "",
                key,
                item,
                weight=weight,
                wait=wait,
                answer=lambda _, error: _finish(future, error),
            )
        return future

    def get(
        self, *, key: Hashable, target_weight: float | None, wait: bool, producer: str | None = None
    ) -> tuple[Hashable, Future[Any]]:
        """Take items."""
        future: Future[Any] = Promise()
        request = next(_requests)

        def answer(items: list[Item[Any]], error: BaseException | None) -> None:
            # A cancelled requester takes nothing: the items stay granted until cancel() returns them.
            if _end(future, [item.payload for item in items], error):
                self._queue.acknowledge("", request)

        with self._lock:
            self._queue.get(request, "", key, target_weight=target_weight, wait=wait, answer=answer)
        future.add_done_callback(lambda done: self.cancel(request) if done.cancelled() else None)
        return request, future

    def unpack(self, granted: Any) -> list[Any]:
        """Return the items."""
        return list(granted)

    def cancel(self, request: Hashable) -> None:
        """Stop waiting."""
        with self._lock:
            self._queue.cancel("", request)

    def expire(self, request: Hashable, future: Future[Any], seconds: float, error: Exception) -> None:
        """End a get after ``seconds``."""

        def fire() -> None:
            with self._lock:
                if _end(future, None, error):
                    self._queue.cancel("", request)

        timer = threading.Timer(seconds, fire)
        timer.daemon = True
        timer.start()
        future.add_done_callback(lambda _: timer.cancel())

    def size(self, key: Hashable) -> int:
        """Return the number of items of a key."""
        with self._lock:
            return self._queue.size(key)

    def close(self) -> None:
        """Refuse further puts."""
        with self._lock:
            self._queue.close()


class HostedBackend:
    """A queue on a channel host."""

    def __init__(self, host: EndpointInfo, channel_id: str) -> None:
        self.host = host
        self.channel_id = channel_id
        self._endpoint = current_runtime().endpoint
        self._endpoint.notify(host, "channel_open", (channel_id,))
        # Requests whose items have arrived: the next get says so to the host, or a message of its own does soon after.
        self._arrived: deque[Hashable] = deque()
        self._will_acknowledge = False

    def put(self, item: Any, *, key: Hashable, weight: float, wait: bool) -> Future[Any]:
        """Add an item."""
        return self._endpoint.request(self.host, "channel_put", (self.channel_id, key, weight, wait), encode(item))

    def get(
        self, *, key: Hashable, target_weight: float | None, wait: bool, producer: str | None = None
    ) -> tuple[Hashable, Future[Any]]:
        """Take items."""
        request = next(_requests)
        future: Future[Any] = self._endpoint.promise()

        def granted(reply: Future[Reply]) -> None:
            error = reply.exception()
            taken = _end(future, None if error is not None else reply.result(), error)
            if taken and error is None:
                self._acknowledge_soon(request)

        arguments = (self.channel_id, key, target_weight, wait, request, producer, self._take_arrived())
        self._endpoint.request(self.host, "channel_get", arguments).add_done_callback(granted)
        future.add_done_callback(lambda done: self.cancel(request) if done.cancelled() else None)
        return request, future

    def unpack(self, granted: Any) -> list[Any]:
        """Return the items."""
        items, start = [], 0
        for count in granted.value:
            items.append(decode(granted.frames[start : start + count]))
            start += count
        return items

    def cancel(self, request: Hashable) -> None:
        """Stop waiting."""
        self._endpoint.notify(self.host, "channel_cancel", (self.channel_id, request))

    def expire(self, request: Hashable, future: Future[Any], seconds: float, error: Exception) -> None:
        """End a get after ``seconds``; on the thread that replies arrive on, so that only one of both ends it."""
        loop = self._endpoint.loop

        def fire() -> None:
            if _end(future, None, error):
                self.cancel(request)

        loop.call_soon_threadsafe(lambda: loop.call_later(seconds, fire))

    def size(self, key: Hashable) -> int:
        """Return the number of items of a key."""
        return int(self._endpoint.ask(self.host, "channel_size", self.channel_id, key))

    def close(self) -> None:
        """Refuse further puts."""
        self._endpoint.ask(self.host, "channel_close", self.channel_id)

    def _acknowledge_soon(self, request: Hashable) -> None:
        self._arrived.append(request)
        if not self._will_acknowledge:
            self._will_acknowledge = True
            loop = self._endpoint.loop
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(loop.call_later, _ACKNOWLEDGE_SECONDS, self._acknowledge)

    def _acknowledge(self) -> None:
        self._will_acknowledge = False
        arrived = self._take_arrived()
        if arrived:
            self._endpoint.notify(self.host, "channel_ack", (self.channel_id, arrived))

    def _take_arrived(self) -> tuple[Hashable, ...]:
        arrived = []
        with contextlib.suppress(IndexError):  # another thread was faster
            while self._arrived:
                arrived.append(self._arrived.popleft())
        return tuple(arrived)


def _end(future: Future[Any], value: Any, error: BaseException | None) -> bool:
    """End a future; False when nobody waits for it any more, or another thread has just ended it."""
    with _ending:
        if future.done() or future.running() or not future.set_running_or_notify_cancel():
            return False
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(value)
    return True


def _finish(future: Future[Any], error: BaseException | None) -> None:
    _end(future, None, error)
