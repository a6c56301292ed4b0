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
LookupCallback = Callable[[list[WorkerInfo] | None, RLinfError | None], None]
MasterCallback = Callable[[tuple[str, int]], None]

Grant = Callable[[], None]


@dataclass
class GroupRecord:
    """One launch of a group."""

    name: str
    incarnation: int
    world_size: int
    members: dict[int, WorkerInfo] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    closed: bool = False
    error: RLinfError | None = None
    master: tuple[str, int] | None = None
    launchers: list[LookupCallback] = field(default_factory=list)
    master_waiters: list[MasterCallback] = field(default_factory=list)
    ordered: list[WorkerInfo] = field(default_factory=list)

    @property
    def is_live(self) -> bool:
        """Whether every rank is ready and none is gone."""
        return not self.closed and not self.gone and len(self.members) == self.world_size

    def by_rank(self) -> list[WorkerInfo]:
        """Return the members by rank, once all are ready; the same list for all ranks, since each requests it."""
        if not self.ordered:
            self.ordered = [self.members[rank] for rank in range(self.world_size)]
        return self.ordered


class GroupRegistry:
    """All groups of a run, by name; launching a name again replaces its record."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupRecord] = {}
        self._waiting: dict[str, list[LookupCallback]] = defaultdict(list)

    def begin(self, name: str, world_size: int) -> GroupRecord:
        """Start a launch.

        Raises:
            ClusterError: A group of this name is running.
        """
        old = self._groups.get(name)
        if old is not None and not old.closed and len(old.gone) < old.world_size:
            raise ClusterError(
                f"A group named '{name}' is already running ({old.world_size} ranks). Close it first, or launch under "
                "another name."
            )
        group = GroupRecord(name, 1 if old is None else old.incarnation + 1, world_size)
        self._groups[name] = group
        return group

    def find(self, address: WorkerAddress) -> GroupRecord | None:
        """Return the record of a worker's group, or None when the group has been launched again since."""
        group = self._groups.get(address.group_name)
        return group if group is not None and group.incarnation == address.incarnation else None

    def on_node(self, node_id: str) -> list[WorkerInfo]:
        """Return the running workers of a node, by Ray's id of it."""
        return [
            member
            for group in self._groups.values()
            for rank, member in group.members.items()
            if member.endpoint.node_id == node_id and rank not in group.gone
        ]

    def ready(self, info: WorkerInfo) -> GroupRecord | None:
        """Mark a rank ready; return the record when it was the last one."""
        group = self.find(info.address)
        if group is None or group.closed:
            return None
        group.members[info.rank] = info
        if not group.is_live:
            return None
        for callback in [*group.launchers, *self._waiting.pop(group.name, [])]:
            callback(group.by_rank(), None)
        group.launchers.clear()
        return group

    def fail(self, group: GroupRecord, error: RLinfError) -> None:
        """Note that a launch has failed."""
        group.error = group.error or error
        for callback in group.launchers:
            callback(None, group.error)
        group.launchers.clear()

    def wait_launched(self, group: GroupRecord, callback: LookupCallback) -> None:
        """LookupCallback when all ranks are ready or the first has failed."""
        if group.error is not None:
            callback(None, group.error)
        elif group.is_live:
            callback(group.by_rank(), None)
        else:
            group.launchers.append(callback)

    def lookup(self, name: str, wait: bool, callback: LookupCallback) -> None:
        """Pass the members of a group whose ranks were all ready to ``callback``, after its launch if ``wait``."""
        group = self._groups.get(name)
        if group is not None and len(group.members) == group.world_size:
            callback(group.by_rank(), None)
        elif wait:
            self._waiting[name].append(callback)
        else:
            names = sorted(self._groups)
            callback(
                None,
                ClusterError(
                    f"No group named '{name}' has been launched.{did_you_mean(name, names)} "
                    f"Launched: {', '.join(names) or 'none'}."
                ),
            )

    def is_alive(self, address: WorkerAddress) -> bool:
        """Whether the newest launch of the address's group has this rank, and its process has not ended."""
        group = self._groups.get(address.group_name)
        return group is not None and 0 <= address.rank < group.world_size and address.rank not in group.gone

    def describe(self) -> list[dict[str, Any]]:
        """Return, as plain values, every group's newest launch and its ranks."""
        return [_describe(group) for group in self._groups.values()]

    def gone(self, address: WorkerAddress, error: WorkerDiedError) -> GroupRecord | None:
        """Mark a rank as gone; return its group's record unless that was known."""
        group = self.find(address)
        if group is None or address.rank in group.gone:
            return None
        group.gone.add(address.rank)
        self.fail(group, error)
        return group


def _describe(group: GroupRecord) -> dict[str, Any]:
    starting = len(group.members) < group.world_size
    state = "closed" if group.closed else "failed" if group.gone or group.error else ""
    ranks: list[dict[str, Any]] = []
    for rank in range(group.world_size):
        member = group.members.get(rank)
        entry: dict[str, Any] = {"rank": rank, "state": "gone" if rank in group.gone else "ready"}
        if member is None:
            entry["state"] = "gone" if rank in group.gone else "starting"
        else:
            entry |= {"pid": member.pid, "node_rank": member.node_rank, "node_ip": member.node_ip}
            entry |= {"node_id": member.endpoint.node_id, "uid": member.endpoint.uid}
        ranks.append(entry)
    return {
        "name": group.name,
        "incarnation": group.incarnation,
        "world_size": group.world_size,
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
        """Reserve a port of a node; False when a live process has it, be it this one: nothing may listen there yet."""
        if (node, port) in self._ports:
            return False
        self._ports[node, port] = owner
        return True

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
