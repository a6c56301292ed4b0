"""Workers without a cluster: messages go through queues of this process."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Hashable
from concurrent.futures import Future
from typing import Any

import torch

from rlinf.scheduler.comm.work import AsyncWork

Address = tuple[str, int]


class PostOffice:
    """Messages by sender, receiver and tag, in the order in which they were sent; of any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.messages: defaultdict[Hashable, deque[Any]] = defaultdict(deque)
        self.waiting: defaultdict[Hashable, deque[Future[Any]]] = defaultdict(deque)

    def post(self, source: Address, target: Address, tag: Hashable, message: Any) -> None:
        """Deliver a message to whoever waits for it, or keep it."""
        route = (source, target, tag)
        with self._lock:
            if self.waiting[route]:
                self.waiting[route].popleft().set_result(message)
            else:
                self.messages[route].append(message)

    def fetch(self, source: Address, target: Address, tag: Hashable) -> Future[Any]:
        """Return the next message of a route, now or later."""
        route, future = (source, target, tag), Future()
        with self._lock:
            if self.messages[route]:
                future.set_result(self.messages[route].popleft())
            else:
                self.waiting[route].append(future)
        return future

    def sent(self, source: Address, target: Address, tag: Hashable) -> list[Any]:
        """Take everything that was sent on a route and not received."""
        messages = list(self.messages[source, target, tag])
        self.messages[source, target, tag].clear()
        return messages

    def wire(self, cls: type, *args: Any, group: str, rank: int = 0, world_size: int = 1) -> Any:
        """Build a worker that sends and receives through this post office.

        Args:
            cls: Its class.
            *args: Of its constructor.
            group: Name of its group.
            rank: Its rank.
            world_size: Size of its group.
        """
        worker = cls.__new__(cls)  # type: ignore[call-overload]
        worker._group_name, worker._rank, worker._world_size = group, rank, world_size
        worker._messenger = _Messenger(self, (group, rank))
        worker.__init__(*args)
        return worker


class _Messenger:
    """Stands where a worker's messenger stands."""

    def __init__(self, office: PostOffice, address: Address) -> None:
        self.office, self.address = office, address

    node_id = "node"

    def find_nodes(self, group: str) -> list[str]:
        return []

    def shared_buffer(self, num_bytes: int) -> torch.Tensor:
        return torch.zeros(num_bytes, dtype=torch.uint8)

    def send(
        self, obj: Any, group: str, ranks: Any, *, tag: Hashable, timeout: float | None, options: Any = None
    ) -> AsyncWork[None]:
        for rank in [ranks] if isinstance(ranks, int) else ranks:
            self.office.post(self.address, (group, rank), tag, obj)
        done: Future[None] = Future()
        done.set_result(None)
        return AsyncWork(done)

    def recv(self, group: str, rank: int, *, tag: Hashable, timeout: float | None) -> AsyncWork[Any]:
        return AsyncWork(self.office.fetch((group, rank), self.address, tag))
