"""Messages that have arrived and receives that wait for one, matched by source, tag and order."""

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


class Envelope(NamedTuple):
    """What identifies a message.

    Attributes:
        source: Group and rank of the sender.
        incarnation: The sender's incarnation.
        sequence: Position among all messages of this sender to this receiver, from 0.
        tag: What the sender and the receiver agreed to call it.
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

    A message belongs to the mailbox until its receiver has taken it: that of a receive that was given up comes back.

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
        # What receives have ended with and nobody has taken yet.
        self._untaken: dict[Future[Frames], tuple[Envelope, Frames]] = {}
        # The newest incarnation of each source, and the number of its next message.
        self._expected: dict[Source, tuple[int, int]] = {}
        self._dead: dict[Source, tuple[int, WorkerDiedError]] = {}
        self._orphaned: RLinfError | None = None
        self.num_dropped = 0

    def deliver(self, envelope: Envelope, frames: Frames) -> None:
        """Hand an arrived message to the first receive that waits for it, or keep it for the next."""
        with self._lock:
            if self._is_stale(envelope):
                self.num_dropped += 1
                return
            incarnation, expected = self._expected.get(envelope.source, (envelope.incarnation, 0))
            lost = envelope.sequence - (expected if incarnation == envelope.incarnation else 0)
            self._expected[envelope.source] = (envelope.incarnation, envelope.sequence + 1)
            future = None if lost else self._hand_over(envelope, frames)
        if lost:
            self.source_died(envelope.source, envelope.incarnation, _lost_messages(self._owner, envelope, lost))
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
        """The message that a receive has ended with is its receiver's now."""
        self._untaken.pop(future, None)

    def give_up(self, source: Source, tag: Hashable, future: Future[Frames]) -> None:
        """Nobody waits for a receive any more: a message that it has ended with is there for the next one."""
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
        """Fail what waits for ``source`` and drop what it had sent."""
        with self._lock:
            known = self._dead.get(source)
            if known is not None and known[0] >= incarnation:
                return
            self._dead[source] = (incarnation, error)
            self._drop_older(source, incarnation + 1)
            failed = [self._waiting.pop(key) for key in list(self._waiting) if key[0] == source]
        self._fail(failed, error)

    def orphan(self, error: RLinfError) -> None:
        """Fail all receives, now and later: nobody is left who would tell that their sources have died."""
        with self._lock:
            self._orphaned = error
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
        self._untaken[future] = (Envelope(key[0], message.incarnation, message.sequence, key[1]), message.frames)
        return message.frames

    def _failure_of(self, source: Source) -> RLinfError | None:
        return self._dead[source][1] if source in self._dead else self._orphaned

    def _hand_over(self, envelope: Envelope, frames: Frames) -> Future[Frames] | None:
        """Return the first receive that waits for a message, to be ended with it; or keep the message in its place."""
        key = (envelope.source, envelope.tag)
        waiting = self._waiting.get(key, ())
        found = None
        while waiting and found is None:
            future = waiting.popleft()
            self._deadlines.remove(future)
            if future.set_running_or_notify_cancel():
                self._untaken[future] = (envelope, frames)
                found = future
        if not waiting:
            self._waiting.pop(key, None)
        if found is None:
            message = _Message(envelope.incarnation, envelope.sequence, frames)
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

    def _is_stale(self, envelope: Envelope) -> bool:
        dead = self._dead.get(envelope.source)
        if dead is not None and envelope.incarnation <= dead[0]:
            return True
        known = self._expected.get(envelope.source)
        return known is not None and known[0] > envelope.incarnation

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


def _lost_messages(owner: str, envelope: Envelope, lost: int) -> WorkerDiedError:
    group, rank = envelope.source
    get_logger(__name__).error("%s lost %d messages from %s:%d; their connection broke.", owner, lost, group, rank)
    return WorkerDiedError(
        f"The connection from {group}:{rank} to {owner} broke and {lost} messages were lost.", group=group, rank=rank
    )
