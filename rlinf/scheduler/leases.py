"""Locks and ports that belong to a process and die with it. Pure: the manager serves it."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable
from typing import Any

Grant = Callable[[], None]


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
