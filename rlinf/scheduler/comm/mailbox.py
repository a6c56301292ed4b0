"""Matches messages that have arrived with pending receives, by source, tag and order."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple

from rlinf.errors import CommTimeoutError, RLinfError, WorkerDiedError
from rlinf.scheduler.comm.futures import Deadlines, Promise
from rlinf.utils.logging import get_logger

Source = tuple[str, int]
Frames = list[memoryview]


class MessageHeader(NamedTuple):
    """What identifies a message.

    Attributes:
        source: Group and rank of the sender.
        incarnation: The sender's incarnation.
        sequence: Position among all messages of this sender to this receiver, from 0.
        tag: Chosen by sender and receiver.
    """

    source: Source
    incarnation: int
    sequence: int
    tag: Hashable


class _Message(NamedTuple):
    """A message that has arrived; compares by the order in which its source has sent."""

    incarnation: int
    sequence: int
    frames: Frames


class Mailbox:
    """One per process. A receive ends with exactly one of: a message, the sender's death, a time-out, cancellation.

    A message belongs to the mailbox until its receiver has taken it: if the receive is cancelled, it comes back.

    Args:
        owner: Name of the worker it belongs to, for messages.
        loop: The endpoint's event loop; time-outs fire on it.
        promise: Makes the futures that receives return.
    """

    def __init__(
        self, owner: str, loop: asyncio.AbstractEventLoop, promise: Callable[[], Promise[Frames]] = Promise
    ) -> None:
        self._owner = owner
        self._promise = promise
        self._deadlines = Deadlines(loop)
        self._lock = threading.Lock()
        # Only keys that hold something: programs use a new tag for each step.
        self._arrived: dict[tuple[Source, Hashable], deque[_Message]] = {}
        self._waiting: dict[tuple[Source, Hashable], deque[Future[Frames]]] = {}
        # Messages of finished receives that the receiver has not taken yet.
        self._untaken: dict[Future[Frames], tuple[MessageHeader, Frames]] = {}
        # The newest incarnation of each source, and the number of its next message.
        self._expected: dict[Source, tuple[int, int]] = {}
        self._dead: dict[Source, tuple[int, WorkerDiedError]] = {}
        self._run_error: RLinfError | None = None
        self.num_dropped = 0

    def deliver(self, header: MessageHeader, frames: Frames) -> None:
        """Hand an arrived message to the first receive that waits for it, or keep it for the next."""
        with self._lock:
            if self._is_stale(header):
                self.num_dropped += 1
                return
            incarnation, expected = self._expected.get(header.source, (header.incarnation, 0))
            lost = header.sequence - (expected if incarnation == header.incarnation else 0)
            self._expected[header.source] = (header.incarnation, header.sequence + 1)
            future = None if lost else self._hand_over(header, frames)
        if lost:
            self.source_died(header.source, header.incarnation, _lost_messages(self._owner, header, lost))
        elif future is not None:
            future.set_result(frames)

    def receive(
        self,
        source: Source,
        tag: Hashable,
        timeout_seconds: float | None,
        future: Promise[Frames] | None = None,
    ) -> Promise[Frames]:
        """Return a future for the next message of ``source`` with ``tag``.

        Args:
            source: Group and rank of the sender.
            tag: The message's tag.
            timeout_seconds: Seconds until the future ends with ``CommTimeoutError``; None is no limit.
            future: The future to use; None makes a new one.
        """
        future = self._promise() if future is None else future
        key = (source, tag)
        with self._lock:
            if future.cancelled():
                return future
            frames = self._pop_arrived(key, future)
            error = None if frames is not None else self._failure_of(source)
            waits = frames is None and error is None
            if waits:
                self._waiting.setdefault(key, deque()).append(future)
                if timeout_seconds is not None:
                    expire = partial(self._expire, key, future, timeout_seconds, time.time())
                    self._deadlines.add(future, timeout_seconds, expire)
        if not waits:
            future.end(frames, error)
        return future

    def take(self, future: Future[Frames]) -> None:
        """Pass the message of a finished receive to its receiver."""
        self._untaken.pop(future, None)

    def give_up(self, source: Source, tag: Hashable, future: Future[Frames]) -> None:
        """Cancel a receive; a message that it has ended with goes to the next one."""
        key = (source, tag)
        self._deadlines.remove(future)
        future.cancel()
        heir = None
        with self._lock:
            self._remove_waiting(key, future)
            untaken = self._untaken.pop(future, None)
            if untaken is not None and self._is_stale(untaken[0]):
                self.num_dropped += 1
            elif untaken is not None:
                heir = self._hand_over(*untaken)
        if heir is not None and untaken is not None:
            heir.set_result(untaken[1])

    def source_died(self, source: Source, incarnation: int, error: WorkerDiedError) -> None:
        """Fail the receives from ``source`` and drop its messages."""
        with self._lock:
            known = self._dead.get(source)
            if known is not None and known[0] >= incarnation:
                return
            self._dead[source] = (incarnation, error)
            self._drop_older(source, incarnation + 1)
            failed = [self._waiting.pop(key) for key in list(self._waiting) if key[0] == source]
        self._fail(failed, error)

    def fail_pending(self, error: RLinfError) -> None:
        """Fail all receives, now and later, since deaths of their sources are no longer reported."""
        with self._lock:
            self._run_error = error
            failed = list(self._waiting.values())
            self._waiting.clear()
        self._fail(failed, error)

    def source_started(self, source: Source, incarnation: int) -> None:
        """Expect messages of a new incarnation of ``source``; those of older ones are dropped."""
        with self._lock:
            known = self._dead.get(source)
            if known is not None and known[0] < incarnation:
                del self._dead[source]
            self._drop_older(source, incarnation)
            if self._expected.get(source, (-1, 0))[0] < incarnation:
                self._expected[source] = (incarnation, 0)

    def death_of(self, source: Source) -> WorkerDiedError | None:
        """Return the error of the source's death, or None while it lives as far as is known."""
        with self._lock:
            known = self._dead.get(source)
            return None if known is None else known[1]

    def _fail(self, waiting: Iterable[Iterable[Future[Frames]]], error: RLinfError) -> None:
        for futures in waiting:
            for future in futures:
                self._deadlines.remove(future)
                if future.set_running_or_notify_cancel():
                    future.set_exception(error)

    def _pop_arrived(self, key: tuple[Source, Hashable], future: Future[Frames]) -> Frames | None:
        arrived = self._arrived.get(key)
        if not arrived:
            return None
        message = arrived.popleft()
        if not arrived:
            del self._arrived[key]
        self._untaken[future] = (MessageHeader(key[0], message.incarnation, message.sequence, key[1]), message.frames)
        return message.frames

    def _failure_of(self, source: Source) -> RLinfError | None:
        return self._dead[source][1] if source in self._dead else self._run_error

    def _hand_over(self, header: MessageHeader, frames: Frames) -> Future[Frames] | None:
        """Return the first receive that waits for a message, to be ended with it; or keep the message in its place."""
        key = (header.source, header.tag)
        waiting = self._waiting.get(key, ())
        found = None
        while waiting and found is None:
            future = waiting.popleft()
            self._deadlines.remove(future)
            if future.set_running_or_notify_cancel():
                self._untaken[future] = (header, frames)
                found = future
        if not waiting:
            self._waiting.pop(key, None)
        if found is None:
            message = _Message(header.incarnation, header.sequence, frames)
            arrived = self._arrived.setdefault(key, deque())
            # Nearly always the newest; one that comes back may be older than all.
            place = len(arrived)
            while place and arrived[place - 1][:2] > message[:2]:
                place -= 1
            arrived.insert(place, message)
        return found

    def _remove_waiting(self, key: tuple[Source, Hashable], future: Future[Frames]) -> bool:
        waiting = self._waiting.get(key)
        if waiting is None or future not in waiting:
            return False
        waiting.remove(future)
        if not waiting:
            del self._waiting[key]
        return True

    def _is_stale(self, header: MessageHeader) -> bool:
        dead = self._dead.get(header.source)
        if dead is not None and header.incarnation <= dead[0]:
            return True
        known = self._expected.get(header.source)
        return known is not None and known[0] > header.incarnation

    def _drop_older(self, source: Source, incarnation: int) -> None:
        for key in [key for key in self._arrived if key[0] == source]:
            messages = self._arrived.pop(key)
            kept = deque(message for message in messages if message.incarnation >= incarnation)
            self.num_dropped += len(messages) - len(kept)
            if kept:
                self._arrived[key] = kept

    def _expire(self, key: tuple[Source, Hashable], future: Future[Frames], timeout: float, started: float) -> None:
        with self._lock:
            live = self._remove_waiting(key, future) and future.set_running_or_notify_cancel()
        if live:
            (group, rank), tag = key
            since = time.strftime("%H:%M:%S", time.localtime(started))
            label = "" if tag is None else f" with tag {tag!r}"
            future.set_exception(
                CommTimeoutError(
                    f"{self._owner} has waited since {since} for a message{label} from {group}:{rank}, "
                    f"longer than {timeout:g} s. Check that the sender reaches its send, "
                    "or raise the timeout (RLINF_TIMEOUT_SECONDS)."
                )
            )


def _lost_messages(owner: str, header: MessageHeader, lost: int) -> WorkerDiedError:
    group, rank = header.source
    get_logger(__name__).error("%s lost %d messages from %s:%d; their connection broke.", owner, lost, group, rank)
    return WorkerDiedError(
        f"The connection from {group}:{rank} to {owner} broke and {lost} messages were lost.", group=group, rank=rank
    )
