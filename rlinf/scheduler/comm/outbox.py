"""Messages on their way out: each destination is looked up once, and its messages leave in the order they were sent."""

from __future__ import annotations

import pickle
import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from rlinf.errors import ClusterError
from rlinf.scheduler.address import WorkerAddress, WorkerInfo
from rlinf.scheduler.comm.endpoint import Endpoint, Frame
from rlinf.scheduler.comm.futures import Promise

# Looks up a worker at the manager: (group, rank, whether to wait until the group is launched).
MemberLookup = Callable[[str, int, bool], "Future[WorkerInfo]"]


@dataclass
class _Destination:
    lock: threading.Lock = field(default_factory=threading.Lock)
    info: WorkerInfo | None = None
    is_looking_up: bool = False
    sequence: int = 0
    queued: deque[tuple[Hashable, Sequence[Frame], Promise[None]]] = field(default_factory=deque)


class Outbox:
    """Sends messages to workers by group and rank.

    Args:
        source: The worker that sends.
        endpoint: The process's endpoint.
        lookup: Looks up a worker at the manager.
    """

    def __init__(self, source: WorkerAddress, endpoint: Endpoint, lookup: MemberLookup) -> None:
        self._source = source
        self._name = (source.group_name, source.rank)
        self._endpoint = endpoint
        self._lookup = lookup
        self._destinations: dict[tuple[str, int], _Destination] = {}
        self._lock = threading.Lock()

    def send(self, group: str, rank: int, tag: Hashable, frames: Sequence[Frame]) -> Future[None] | None:
        """Send frames, which may change once this returns.

        Returns:
            None when they are on their way, else a future that ends when they are, or with the destination's death.
            Cancelling it before keeps the message here.

        Raises:
            TypeError: Or another error of pickle: the tag cannot be pickled.
        """
        destination = self._destinations.get((group, rank))
        if destination is None:
            with self._lock:
                destination = self._destinations.setdefault((group, rank), _Destination())
        with destination.lock:
            info = destination.info
            if info is not None and self._endpoint.is_dead(info.endpoint.uid) is None and not destination.queued:
                self._transmit(destination, info, tag, frames)
                return None
            pickle.dumps(tag)  # what cannot be sent later is an error now, while there is a caller to get it
            future: Promise[None] = Promise()
            destination.queued.append((tag, self._endpoint.snapshot(frames), future))
            if destination.is_looking_up:
                return future
            destination.is_looking_up = True
        answer = self._lookup(group, rank, info is None)
        answer.add_done_callback(lambda found: self._resolved(destination, found))
        return future

    def known(self, group: str, rank: int) -> WorkerInfo | None:
        """Return the destination that the next message goes to at once; None while it must be looked up."""
        destination = self._destinations.get((group, rank))
        if destination is None or destination.info is None or destination.queued:
            return None
        return destination.info if self._endpoint.is_dead(destination.info.endpoint.uid) is None else None

    def _transmit(self, destination: _Destination, info: WorkerInfo, tag: Hashable, frames: Sequence[Frame]) -> None:
        header = (self._name, self._source.incarnation, destination.sequence, tag)  # an MessageHeader, as plain data
        self._endpoint.notify(info.endpoint, "data", header, frames)
        destination.sequence += 1

    def _resolved(self, destination: _Destination, found: Future[WorkerInfo]) -> None:
        error = found.exception()
        ended: list[tuple[Promise[None], BaseException | None]] = []
        with destination.lock:
            destination.is_looking_up = False
            if error is None:
                member = found.result()
                if destination.info is None or destination.info.endpoint != member.endpoint:
                    destination.info, destination.sequence = member, 0
                error = self._endpoint.is_dead(member.endpoint.uid)
            queued = list(destination.queued)
            destination.queued.clear()
            for tag, frames, future in queued:
                if not future.set_running_or_notify_cancel():
                    continue
                failure = error
                try:
                    if destination.info is not None and failure is None:
                        self._transmit(destination, destination.info, tag, frames)
                except ClusterError as refused:
                    failure = refused
                ended.append((future, failure))
        for future, failure in ended:
            if failure is not None:
                future.set_exception(failure)
            else:
                future.set_result(None)
