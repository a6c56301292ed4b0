"""The logic of a channel: keyed FIFO queues, bounded, weighted, with every request answered exactly once. Pure.

An item that was granted stays known until its consumer acknowledges it: if the consumer dies first, the item goes
back to the head of its key, in its old place.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from rlinf.errors import ChannelClosedError, RLinfError, WorkerDiedError

T = TypeVar("T")

# A request's name: the process that made it, and its own name for it.
Name = tuple[str, Hashable]

# Keys without items and requests that a channel remembers the users of. Programs use a new key for each step.
_MAX_IDLE_LANES = 1024


@dataclass(frozen=True, slots=True)
class Item(Generic[T]):
    """One item of a channel."""

    number: int
    key: Hashable
    payload: T
    weight: float
    put: Name


class RejectedError(RLinfError):
    """A request that may not wait found the queue full or empty."""


# Called exactly once per request: with the granted items (for a put: none), or with an error.
Answer = Callable[[list[Item[Any]], BaseException | None], None]


@dataclass(eq=False, slots=True)
class _Put(Generic[T]):
    owner: str
    item: Item[T]
    answer: Answer
    since: float = field(default_factory=time.time)


@dataclass(eq=False, slots=True)
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


@dataclass(eq=False, slots=True)
class _Lane(Generic[T]):
    items: deque[Item[T]] = field(default_factory=deque)
    # In order of their beginning; any of them may leave at any time.
    puts: OrderedDict[Name, _Put[T]] = field(default_factory=OrderedDict)
    gets: OrderedDict[Name, _Get[T]] = field(default_factory=OrderedDict)
    producers: set[str] = field(default_factory=set)
    dead_producers: dict[str, WorkerDiedError] = field(default_factory=dict)
    consumers: set[str] = field(default_factory=set)
    dead_consumers: dict[str, WorkerDiedError] = field(default_factory=dict)

    @property
    def is_idle(self) -> bool:
        return not (self.items or self.puts or self.gets)


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
        # Least recently used first.
        self._lanes: dict[Hashable, _Lane[T]] = {}
        self._forget_above = 2 * _MAX_IDLE_LANES
        self._granted: dict[str, dict[Hashable, list[Item[T]]]] = {}
        # Hold the channel and have neither put nor got yet, or used keys that are forgotten: one of them may be the
        # producer that a get waits for.
        self._idle: set[str] = set()
        self._forgotten: set[str] = set()
        self._gone: dict[str, WorkerDiedError] = {}
        self._handles: Counter[str] = Counter()
        self._openers: set[str] = set()
        self._was_passed_on = False

    def open(self, owner: str) -> None:
        """Note a process that holds one more handle of the channel and may use it."""
        self._idle.add(owner)
        self._openers.add(owner)
        self._handles[owner] += 1

    def leave(self, owner: str, *, passed_on: bool) -> None:
        """Note that a process has let go of a handle.

        Args:
            owner: The process.
            passed_on: It has given the handle to others, who may open it yet.
        """
        self._was_passed_on |= passed_on
        self._handles[owner] -= 1
        if self._handles[owner] <= 0:
            del self._handles[owner]

    @property
    def is_spent(self) -> bool:
        """Whether it can be removed: it is closed, and empty or without an open handle."""
        if not self.closed:
            return False
        is_awaited = self._was_passed_on and len(self._openers) <= 1
        return not (self._handles or is_awaited) or not (self._lanes or self._granted)

    def put(
        self, request: Hashable, owner: str, key: Hashable, payload: T, *, weight: float, wait: bool, answer: Answer
    ) -> None:
        """Add an item; answer when it is in the queue."""
        self._idle.discard(owner)
        if self.closed:
            answer([], self._closed_error())
            return
        if not weight > 0:
            answer([], ValueError(f"Channel '{self.name}': weight must be > 0, got {weight}."))
            return
        lane = self._lane(key)
        lane.producers.add(owner)
        if not wait and self._is_full(lane):
            answer([], RejectedError(f"Channel '{self.name}' holds {self.maxsize} items for key {key!r}, its maxsize."))
            return
        name = (owner, request)
        lane.puts[name] = _Put(owner, Item(next(self._numbers), key, payload, weight, name), answer)
        self._settle(key, lane)
        if lane.dead_consumers and not lane.consumers and name in lane.puts:
            self._fail_put(lane, name, next(iter(lane.dead_consumers.values())))

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
        name = (owner, request)
        if not wait and (not lane.items or lane.gets):
            error = self._closed_error() if self.closed and not lane.items else None
            answer([], error or RejectedError(f"Channel '{self.name}' has no item for key {key!r}."))
            self._settle(key, lane)
            return
        lane.gets[name] = _Get[T](request, owner, target_weight, answer)
        self._settle(key, lane)
        if lane.dead_producers and name in lane.gets:
            self._fail_get(lane, name, next(iter(lane.dead_producers.values())))

    def acknowledge(self, owner: str, request: Hashable) -> None:
        """The items of this request have reached the requester."""
        self._take_granted(owner, request)

    def cancel(self, owner: str, request: Hashable, key: Hashable) -> None:
        """The requester has given up, and gets no answer.

        What a get was granted and has not acknowledged goes back; the item of a put leaves the queue, unless a get has
        taken it.
        """
        name = (owner, request)
        lane = self._lanes.get(key, _NO_LANE)
        get = lane.gets.pop(name, None)
        back = self._take_granted(owner, request) if get is None else get.taken
        if get is None and not back and lane.puts.pop(name, None) is None:
            place = next((place for place, item in enumerate(lane.items) if item.put == name), None)
            if place is not None:
                del lane.items[place]
        self._give_back(back)
        if key in self._lanes:
            self._settle(key, self._lanes[key])

    def owner_gone(self, owner: str, error: WorkerDiedError, *, closed: bool) -> None:
        """A process has ended: its requests are removed, its grants go back, and those that wait for it fail.

        Args:
            owner: The process.
            error: What waiting getters of its keys get.
            closed: It ended in good order: no waiter fails.
        """
        unacknowledged = [item for items in self._granted.pop(owner, {}).values() for item in items]
        was_idle = owner in self._idle or owner in self._forgotten
        self._gone[owner] = error
        self._idle.discard(owner)
        self._forgotten.discard(owner)
        self._handles.pop(owner, None)
        for lane in self._lanes.values():
            for name in [name for name in lane.puts if name[0] == owner]:
                del lane.puts[name]
            for name in [name for name in lane.gets if name[0] == owner]:
                unacknowledged.extend(lane.gets.pop(name).taken)
        self._give_back(unacknowledged)
        for key, lane in list(self._lanes.items()):
            fed_by_it = owner in lane.producers or (was_idle and not lane.producers)
            emptied_by_it = owner in lane.consumers or (was_idle and not lane.consumers)
            lane.producers.discard(owner)
            lane.consumers.discard(owner)
            self._settle(key, lane)
            if fed_by_it and not closed:
                lane.dead_producers[owner] = error
                for name in list(lane.gets):
                    # What an earlier one gives back may have served it.
                    if name in lane.gets:
                        self._fail_get(lane, name, error)
            # Another consumer would still make room.
            if emptied_by_it and not closed and not lane.consumers:
                lane.dead_consumers[owner] = error
                for name in list(lane.puts):
                    self._fail_put(lane, name, error)

    def group_started(self, group: str) -> None:
        """A group was launched again: getters and putters may wait for it anew."""
        for lane in self._lanes.values():
            lane.dead_producers = _without(lane.dead_producers, group)
            lane.dead_consumers = _without(lane.dead_consumers, group)

    def size(self, key: Hashable) -> int:
        """Return the number of items in the queue of a key."""
        return len(self._lanes[key].items) if key in self._lanes else 0

    def peek(self, key: Hashable) -> list[Item[T]]:
        """Return the items in the queue of a key, which stay there, oldest first."""
        return list(self._lanes[key].items) if key in self._lanes else []

    def describe(self) -> dict[str, Any]:
        """Return, as plain values, the sizes and who waits for what: owner and beginning of each wait."""
        keys = [
            {
                "key": repr(key),
                "items": len(lane.items),
                "getters": [{"uid": get.owner, "since": get.since} for get in lane.gets.values()],
                "putters": [{"uid": put.owner, "since": put.since} for put in lane.puts.values()],
            }
            for key, lane in self._lanes.items()
            if lane.items or lane.gets or lane.puts
        ]
        return {"name": self.name, "maxsize": self.maxsize, "keys": keys}

    def close(self) -> None:
        """Refuse further puts; getters drain the queues, then get ``ChannelClosedError``."""
        self.closed = True
        for key, lane in list(self._lanes.items()):
            for put in list(lane.puts.values()):
                put.answer([], self._closed_error())
            lane.puts.clear()
            self._settle(key, lane)

    def _lane(self, key: Hashable) -> _Lane[T]:
        lane = self._lanes.pop(key, None)
        if lane is None:
            lane = _Lane()
            if len(self._lanes) >= self._forget_above:
                self._forget_idle_lanes()
        self._lanes[key] = lane
        return lane

    def _forget_idle_lanes(self) -> None:
        """Forget the keys that have been empty for longest; done so rarely that it costs little per key."""
        idle = [key for key, lane in self._lanes.items() if lane.is_idle]
        for key in idle[: max(len(idle) - _MAX_IDLE_LANES, 0)]:
            lane = self._lanes.pop(key)
            self._forgotten.update(lane.producers, lane.consumers)
        self._forget_above = 2 * max(len(self._lanes), _MAX_IDLE_LANES)

    def _is_full(self, lane: _Lane[T]) -> bool:
        return bool(lane.puts) or (self.maxsize > 0 and len(lane.items) >= self.maxsize)

    def _settle(self, key: Hashable, lane: _Lane[T]) -> None:
        """Move items in and out until nothing moves any more."""
        while self._accept(lane) or self._grant(lane):
            pass
        if not self.closed or lane.items:
            return
        while lane.gets:
            _, get = lane.gets.popitem(last=False)
            if get.taken:
                self._deliver(get)
            else:
                get.answer([], self._closed_error())
        # Nothing will come any more.
        self._lanes.pop(key, None)

    def _accept(self, lane: _Lane[T]) -> bool:
        if not lane.puts or (self.maxsize > 0 and len(lane.items) >= self.maxsize):
            return False
        _, put = lane.puts.popitem(last=False)
        lane.items.append(put.item)
        put.answer([], None)
        return True

    def _grant(self, lane: _Lane[T]) -> bool:
        if not lane.items or not lane.gets:
            return False
        name, get = next(iter(lane.gets.items()))
        get.taken.append(lane.items.popleft())
        if get.is_satisfied:
            del lane.gets[name]
            self._deliver(get)
        return True

    def _deliver(self, get: _Get[T]) -> None:
        self._granted.setdefault(get.owner, {})[get.request] = get.taken
        get.answer(get.taken, None)

    def _take_granted(self, owner: str, request: Hashable) -> list[Item[T]]:
        granted = self._granted.get(owner)
        if granted is None:
            return []
        items = granted.pop(request, [])
        if not granted:
            del self._granted[owner]
        return items

    def _fail_get(self, lane: _Lane[T], name: Name, error: WorkerDiedError) -> None:
        get = lane.gets.pop(name)
        get.answer([], error)
        self._give_back(get.taken)

    def _fail_put(self, lane: _Lane[T], name: Name, error: WorkerDiedError) -> None:
        lane.puts.pop(name).answer([], error)

    def _give_back(self, items: list[Item[T]]) -> None:
        """Put items back to the head of their keys, in their old order."""
        touched = {}
        for item in sorted(items, key=lambda item: item.number, reverse=True):
            lane = touched[item.key] = self._lane(item.key)
            later = (place for place, other in enumerate(lane.items) if other.number > item.number)
            lane.items.insert(next(later, len(lane.items)), item)
        for key, lane in touched.items():
            self._settle(key, lane)

    def _closed_error(self) -> ChannelClosedError:
        return ChannelClosedError(f"Channel '{self.name}' is closed and has no items left for this key.")


# Stands for a key that is forgotten; nothing is ever put in.
_NO_LANE: _Lane[Any] = _Lane()


def _without(dead: dict[str, WorkerDiedError], group: str) -> dict[str, WorkerDiedError]:
    return {owner: error for owner, error in dead.items() if error.group != group}
