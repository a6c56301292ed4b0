"""The registry of groups (names, incarnations, members, waiters) and the leases of processes (locks, ports).

Pure data structures: the manager serves them from its endpoint's thread.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from rlinf.errors import ClusterError, RLinfError, WorkerDiedError
from rlinf.registry import did_you_mean
from rlinf.scheduler.address import WorkerAddress, WorkerInfo

# Called with the members by rank, or with the error that ended the wait.
Answer = Callable[[list[WorkerInfo] | None, RLinfError | None], None]
MasterAnswer = Callable[[tuple[str, int]], None]

Grant = Callable[[], None]


@dataclass
class Roster:
    """One launch of a group."""

    name: str
    incarnation: int
    world_size: int
    members: dict[int, WorkerInfo] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    closed: bool = False
    error: RLinfError | None = None
    master: tuple[str, int] | None = None
    launchers: list[Answer] = field(default_factory=list)
    master_waiters: list[MasterAnswer] = field(default_factory=list)
    ordered: list[WorkerInfo] = field(default_factory=list)

    @property
    def is_live(self) -> bool:
        """Whether every rank is ready and none is gone."""
        return not self.closed and not self.gone and len(self.members) == self.world_size

    def by_rank(self) -> list[WorkerInfo]:
        """Return the members in order of rank, once all are ready; the same list every time: every rank asks."""
        if not self.ordered:
            self.ordered = [self.members[rank] for rank in range(self.world_size)]
        return self.ordered


class Rosters:
    """All groups of a run, by name; launching a name again replaces its roster."""

    def __init__(self) -> None:
        self._rosters: dict[str, Roster] = {}
        self._waiting: dict[str, list[Answer]] = defaultdict(list)

    def begin(self, name: str, world_size: int) -> Roster:
        """Start a launch.

        Raises:
            ClusterError: A group of this name is running.
        """
        old = self._rosters.get(name)
        if old is not None and not old.closed and len(old.gone) < old.world_size:
            raise ClusterError(
                f"A group named '{name}' is already running ({old.world_size} ranks). Close it first, or launch under "
                "another name."
            )
        roster = Roster(name, 1 if old is None else old.incarnation + 1, world_size)
        self._rosters[name] = roster
        return roster

    def find(self, address: WorkerAddress) -> Roster | None:
        """Return the roster of a worker, or None when its group has been launched again since."""
        roster = self._rosters.get(address.group_name)
        return roster if roster is not None and roster.incarnation == address.incarnation else None

    def current(self, name: str) -> Roster | None:
        """Return the newest roster of a name."""
        return self._rosters.get(name)

    def on_node(self, node_id: str) -> list[WorkerInfo]:
        """Return the running workers of a node, by Ray's id of it."""
        return [
            member
            for roster in self._rosters.values()
            for rank, member in roster.members.items()
            if member.endpoint.node_id == node_id and rank not in roster.gone
        ]

    def ready(self, info: WorkerInfo) -> Roster | None:
        """Note that a rank is ready; return the roster when it was the last one."""
        roster = self.find(info.address)
        if roster is None or roster.closed:
            return None
        roster.members[info.rank] = info
        if not roster.is_live:
            return None
        for answer in [*roster.launchers, *self._waiting.pop(roster.name, [])]:
            answer(roster.by_rank(), None)
        roster.launchers.clear()
        return roster

    def fail(self, roster: Roster, error: RLinfError) -> None:
        """Note that a launch has failed."""
        roster.error = roster.error or error
        for answer in roster.launchers:
            answer(None, roster.error)
        roster.launchers.clear()

    def wait_launched(self, roster: Roster, answer: Answer) -> None:
        """Answer when all ranks are ready or the first has failed."""
        if roster.error is not None:
            answer(None, roster.error)
        elif roster.is_live:
            answer(roster.by_rank(), None)
        else:
            roster.launchers.append(answer)

    def lookup(self, name: str, wait: bool, answer: Answer) -> None:
        """Answer with the members of a group that had all its ranks ready, waiting for its launch if asked to."""
        roster = self._rosters.get(name)
        if roster is not None and len(roster.members) == roster.world_size:
            answer(roster.by_rank(), None)
        elif wait:
            self._waiting[name].append(answer)
        else:
            names = sorted(self._rosters)
            answer(
                None,
                ClusterError(
                    f"No group named '{name}' has been launched.{did_you_mean(name, names)} "
                    f"Launched: {', '.join(names) or 'none'}."
                ),
            )

    def describe(self) -> list[dict[str, Any]]:
        """Return, as plain values, every group's newest launch and its ranks."""
        return [_describe(roster) for roster in self._rosters.values()]

    def gone(self, address: WorkerAddress, error: WorkerDiedError) -> Roster | None:
        """Note that a rank is gone; return its roster unless that was known."""
        roster = self.find(address)
        if roster is None or address.rank in roster.gone:
            return None
        roster.gone.add(address.rank)
        self.fail(roster, error)
        return roster


def _describe(roster: Roster) -> dict[str, Any]:
    starting = len(roster.members) < roster.world_size
    state = "closed" if roster.closed else "failed" if roster.gone or roster.error else ""
    ranks: list[dict[str, Any]] = []
    for rank in range(roster.world_size):
        member = roster.members.get(rank)
        entry: dict[str, Any] = {"rank": rank, "state": "gone" if rank in roster.gone else "ready"}
        if member is None:
            entry["state"] = "gone" if rank in roster.gone else "starting"
        else:
            entry |= {"pid": member.pid, "node_rank": member.node_rank, "node_ip": member.node_ip}
            entry |= {"node_id": member.endpoint.node_id, "uid": member.endpoint.uid}
        ranks.append(entry)
    return {
        "name": roster.name,
        "incarnation": roster.incarnation,
        "world_size": roster.world_size,
        "state": state or ("starting" if starting else "running"),
        "ranks": ranks,
    }


class Leases:
    """Who holds which lock and port; an owner is a process, by the uid of its endpoint."""

    def __init__(self) -> None:
        self._holders: dict[Hashable, str] = {}
        self._queues: dict[Hashable, deque[tuple[str, Grant]]] = defaultdict(deque)
        self._ports: dict[tuple[str, int], str] = {}

    def lock(self, key: Hashable, owner: str, grant: Grant) -> None:
        """Call ``grant`` when ``owner`` holds the lock; owners are served in order."""
        self._queues[key].append((owner, grant))
        self._serve(key)

    def unlock(self, key: Hashable, owner: str) -> None:
        """Release a lock; does nothing when ``owner`` does not hold it."""
        if self._holders.get(key) == owner:
            del self._holders[key]
            self._serve(key)

    def take_port(self, node: str, port: int, owner: str) -> bool:
        """Reserve a port of a node; False when another live process has it."""
        return self._ports.setdefault((node, port), owner) == owner

    def release_all(self, owner: str) -> None:
        """Release what a dead process held, and take it out of all queues."""
        self._ports = {port: holder for port, holder in self._ports.items() if holder != owner}
        for key, queue in self._queues.items():
            self._queues[key] = deque(entry for entry in queue if entry[0] != owner)
        for key in [key for key, holder in self._holders.items() if holder == owner]:
            self.unlock(key, owner)

    def holder(self, key: Hashable) -> str | None:
        """Return the uid of the process that holds the lock."""
        return self._holders.get(key)

    def describe(self) -> dict[str, Any]:
        """Return, as plain values, who holds and awaits each lock and who has which port, by uid."""
        locks = [
            {"key": str(key), "holder": holder, "waiting": [owner for owner, _ in self._queues[key]]}
            for key, holder in self._holders.items()
        ]
        ports = [{"node": node, "port": port, "holder": owner} for (node, port), owner in self._ports.items()]
        return {"locks": locks, "ports": ports}

    def _serve(self, key: Hashable) -> None:
        if key not in self._holders and self._queues[key]:
            owner, grant = self._queues[key].popleft()
            self._holders[key] = owner
            grant()
