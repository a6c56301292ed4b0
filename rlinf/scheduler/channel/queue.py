"""The logic of a channel: keyed FIFO queues, bounded, weighted, with every request answered exactly once. Pure.

An item that was granted stays known until its consumer acknowledges it: if the consumer dies first, the item goes
back to the head of its key, in its old place.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from rlinf.errors import ChannelClosedError, RLinfError, WorkerDiedError

T = TypeVar("T")


@dataclass(frozen=True)
class Item(Generic[T]):
    """One item of a channel."""

    number: int
    key: Hashable
    payload: T
    weight: float


class RejectedError(RLinfError):
    """A request that may not wait found the queue full or empty."""


# Called exactly once per request: with the granted items (for a put: none), or with an error.
Answer = Callable[[list[Item[Any]], BaseException | None], None]


@dataclass
class _Put(Generic[T]):
    request: Hashable
    owner: str
    item: Item[T]
    answer: Answer
    since: float = field(default_factory=time.time)


@dataclass
class _Get(Generic[T]):
    request: Hashable
    owner: str
    target_weight: float | None
    answer: Answer
    taken: list[Item[T]] = field(default_factory=list)
    since: float = field(default_factory=time.time)

    @property
    def is_satisfied(self) -> bool:
        if self.target_weight is None:
            return bool(self.taken)
        return bool(self.taken) and sum(item.weight for item in self.taken) >= self.target_weight


@dataclass
class _Lane(Generic[T]):
    items: deque[Item[T]] = field(default_factory=deque)
    puts: deque[_Put[T]] = field(default_factory=deque)
    gets: deque[_Get[T]] = field(default_factory=deque)
    producers: set[str] = field(default_factory=set)
    dead_producers: dict[str, WorkerDiedError] = field(default_factory=dict)
    consumers: set[str] = field(default_factory=set)
    dead_consumers: dict[str, WorkerDiedError] = field(default_factory=dict)


class ChannelQueue(Generic[T]):
    """A channel's queues, one per key.

    Args:
        name: The channel's name, for messages.
        maxsize: Items per key, 0 for no bound.
    """

    def __init__(self, name: str, maxsize: int = 0) -> None:
        self.name = name
        self.maxsize = maxsize
        self.closed = False
        self._numbers = itertools.count()
        self._lanes: dict[Hashable, _Lane[T]] = {}
        self._granted: dict[str, dict[Hashable, list[Item[T]]]] = {}
        # Hold the channel and have neither put nor got yet: one may be the producer that a get waits for.
        self._idle: set[str] = set()
        self._gone: dict[str, WorkerDiedError] = {}

    def open(self, owner: str) -> None:
        """Note a process that holds the channel and may use it."""
        self._idle.add(owner)

    def put(
        self, request: Hashable, owner: str, key: Hashable, payload: T, *, weight: float, wait: bool, answer: Answer
    ) -> None:
        """Add an item; answer when it is in the queue."""
        lane = self._lane(key)
        self._idle.discard(owner)
        if self.closed:
            answer([], self._closed_error(key))
            return
        if not weight > 0:
            answer([], ValueError(f"Channel '{self.name}': weight must be > 0, got {weight}."))
            return
        lane.producers.add(owner)
        entry = _Put(request, owner, Item(next(self._numbers), key, payload, weight), answer)
        if not wait and self._is_full(lane):
            answer([], RejectedError(f"Channel '{self.name}' holds {self.maxsize} items for key {key!r}, its maxsize."))
            return
        lane.puts.append(entry)
        self._settle(lane)
        if lane.dead_consumers and not lane.consumers and entry in lane.puts:
            self._fail_put(lane, entry, next(iter(lane.dead_consumers.values())))

    def get(
        self,
        request: Hashable,
        owner: str,
        key: Hashable,
        *,
        target_weight: float | None,
        wait: bool,
        answer: Answer,
        producer: str | None = None,
    ) -> None:
        """Take the next item, or with a target weight items until their weights reach it.

        ``producer`` names a process that feeds this key, where the requester knows: its death then fails the get
        even if it has put nothing yet.
        """
        lane = self._lane(key)
        self._idle.discard(owner)
        if producer in self._gone:
            lane.dead_producers[producer] = self._gone[producer]
        elif producer is not None:
            lane.producers.add(producer)
        lane.consumers.add(owner)
        lane.dead_consumers.clear()
        entry = _Get[T](request, owner, target_weight, answer)
        if not wait and (not lane.items or lane.gets):
            error = self._closed_error(key) if self.closed and not lane.items else None
            answer([], error or RejectedError(f"Channel '{self.name}' has no item for key {key!r}."))
            return
        lane.gets.append(entry)
        self._settle(lane)
        if lane.dead_producers and entry in lane.gets:
            self._fail_get(lane, entry, next(iter(lane.dead_producers.values())))

    def acknowledge(self, owner: str, request: Hashable) -> None:
        """The items of this request have arrived."""
        self._granted.get(owner, {}).pop(request, None)

    def cancel(self, owner: str, request: Hashable) -> None:
        """The requester no longer waits; what it was granted and has not acknowledged goes back."""
        for lane in list(self._lanes.values()):
            for put in [put for put in lane.puts if (put.owner, put.request) == (owner, request)]:
                lane.puts.remove(put)
            for get in [get for get in lane.gets if (get.owner, get.request) == (owner, request)]:
                lane.gets.remove(get)
                self._give_back(get.taken)
        self._give_back(self._granted.get(owner, {}).pop(request, []))

    def owner_gone(self, owner: str, error: WorkerDiedError, *, closed: bool) -> None:
        """A process has ended: its requests are forgotten, its grants go back, and who waits for it is told.

        Args:
            owner: The process.
            error: What waiting getters of its keys get.
            closed: It ended in good order: nobody is told.
        """
        unacknowledged = [item for items in self._granted.pop(owner, {}).values() for item in items]
        was_idle = owner in self._idle
        self._gone[owner] = error
        self._idle.discard(owner)
        for lane in list(self._lanes.values()):
            lane.puts = deque(put for put in lane.puts if put.owner != owner)
            for get in [get for get in lane.gets if get.owner == owner]:
                lane.gets.remove(get)
                unacknowledged.extend(get.taken)
        self._give_back(unacknowledged)
        for lane in list(self._lanes.values()):
            fed_by_it = owner in lane.producers or (was_idle and not lane.producers)
            emptied_by_it = owner in lane.consumers or (was_idle and not lane.consumers)
            lane.producers.discard(owner)
            lane.consumers.discard(owner)
            self._settle(lane)
            if fed_by_it and not closed:
                lane.dead_producers[owner] = error
                for get in list(lane.gets):
                    self._fail_get(lane, get, error)
            # Another consumer would still make room.
            if emptied_by_it and not closed and not lane.consumers:
                lane.dead_consumers[owner] = error
                for put in list(lane.puts):
                    self._fail_put(lane, put, error)

    def group_started(self, group: str) -> None:
        """A group was launched again: getters and putters may wait for it anew."""
        for lane in self._lanes.values():
            lane.dead_producers = _without(lane.dead_producers, group)
            lane.dead_consumers = _without(lane.dead_consumers, group)

    def size(self, key: Hashable) -> int:
        """Return the number of items in the queue of a key."""
        return len(self._lanes[key].items) if key in self._lanes else 0

    def describe(self) -> dict[str, Any]:
        """Return, as plain values, the sizes and who waits for what: owner and beginning of each wait."""
        keys = [
            {
                "key": repr(key),
                "items": len(lane.items),
                "getters": [{"uid": get.owner, "since": get.since} for get in lane.gets],
                "putters": [{"uid": put.owner, "since": put.since} for put in lane.puts],
            }
            for key, lane in self._lanes.items()
            if lane.items or lane.gets or lane.puts
        ]
        return {"name": self.name, "maxsize": self.maxsize, "keys": keys}

    def close(self) -> None:
        """Refuse further puts; getters drain the queues, then get ``ChannelClosedError``."""
        self.closed = True
        for key, lane in self._lanes.items():
            puts, lane.puts = lane.puts, deque()
            for put in puts:
                put.answer([], self._closed_error(key))
            self._settle(lane)

    def _lane(self, key: Hashable) -> _Lane[T]:
        return self._lanes.setdefault(key, _Lane())

    def _is_full(self, lane: _Lane[T]) -> bool:
        return bool(lane.puts) or (self.maxsize > 0 and len(lane.items) >= self.maxsize)

    def _settle(self, lane: _Lane[T]) -> None:
        """Move items in and out until nothing moves any more."""
        while self._accept(lane) or self._grant(lane):
            pass
        if self.closed and not lane.items:
            for get in list(lane.gets):
                lane.gets.remove(get)
                if get.taken:
                    self._deliver(get)
                else:
                    get.answer([], self._closed_error(None))

    def _accept(self, lane: _Lane[T]) -> bool:
        if not lane.puts or (self.maxsize > 0 and len(lane.items) >= self.maxsize):
            return False
        put = lane.puts.popleft()
        lane.items.append(put.item)
        put.answer([], None)
        return True

    def _grant(self, lane: _Lane[T]) -> bool:
        if not lane.items or not lane.gets:
            return False
        get = lane.gets[0]
        get.taken.append(lane.items.popleft())
        if get.is_satisfied:
            lane.gets.popleft()
            self._deliver(get)
        return True

    def _deliver(self, get: _Get[T]) -> None:
        self._granted.setdefault(get.owner, {})[get.request] = get.taken
        get.answer(get.taken, None)

    def _fail_get(self, lane: _Lane[T], get: _Get[T], error: WorkerDiedError) -> None:
        lane.gets.remove(get)
        get.answer([], error)
        self._give_back(get.taken)

    def _fail_put(self, lane: _Lane[T], put: _Put[T], error: WorkerDiedError) -> None:
        lane.puts.remove(put)
        put.answer([], error)

    def _give_back(self, items: list[Item[T]]) -> None:
        """Put items back to the head of their keys, in their old order."""
        touched = {item.key for item in items}
        for item in sorted(items, key=lambda item: item.number, reverse=True):
            self._lane(item.key).items.appendleft(item)
        for key in touched:
            self._settle(self._lane(key))

    def _closed_error(self, key: Hashable) -> ChannelClosedError:
        return ChannelClosedError(f"Channel '{self.name}' is closed and has no items left for this key.")


def _without(dead: dict[str, WorkerDiedError], group: str) -> dict[str, WorkerDiedError]:
    return {owner: error for owner, error in dead.items() if error.group != group}
