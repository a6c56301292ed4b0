"""How episodes reach the generation engines of a run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from rlinf.data.messages.generation import Completion, GenerationRequest
from rlinf.errors import WorkerDiedError
from rlinf.hybrid_engines.generation.engine_choice import choose_engine
from rlinf.scheduler import WorkerGroup
from rlinf.workers.rollout.generation_worker import GenerationWorker


class EngineClient:
    """Sends requests to the ranks of a rollout group, also after it has been launched again.

    Args:
        group_name: The group's name.
    """

    def __init__(self, group_name: str) -> None:
        self._name = group_name
        self._group: WorkerGroup[GenerationWorker] | None = None
        self._load: list[int] = []

    def at(self, group_id: int) -> GroupClient:
        """Return a client for the episodes of a group, which have an engine in common."""
        return GroupClient(self, group_id)

    async def generate(self, request: GenerationRequest, home: int) -> Completion:
        """Have a request completed.

        Args:
            request: One response to a prompt.
            home: Number of the engine that has the prefix, modulo the number of engines.

        Raises:
            WorkerDiedError: The engine has died.
            WorkerError: The engine failed.
        """
        group = self._group or await self._look_up()
        try:
            return await self._complete(group, request, home)
        except WorkerDiedError:
            launched = await self._look_up()
            if launched is group:
                raise
        return await self._complete(launched, request, home)

    async def _look_up(self) -> WorkerGroup[GenerationWorker]:
        # It waits for the group's launch.
        found = await asyncio.to_thread(WorkerGroup.from_group_name, GenerationWorker, self._name)
        if self._group is None or _processes(found) != _processes(self._group):
            self._group, self._load = found, [0] * found.world_size
        return self._group

    async def _complete(
        self, group: WorkerGroup[GenerationWorker], request: GenerationRequest, home: int
    ) -> Completion:
        load = self._load
        rank = choose_engine(load, home % len(load))
        load[rank] += 1
        try:
            named = replace(request, prefix_group=str(home))
            (completion,) = await group.execute_on(rank).complete(named).async_wait()
        except asyncio.CancelledError:
            group.execute_on(rank).abort_requests([request.request_id])
            raise
        finally:
            load[rank] -= 1
        return completion  # type: ignore[no-any-return]


def _processes(group: WorkerGroup[GenerationWorker]) -> list[tuple[str, int]]:
    return [(each.node_ip, each.pid) for each in group.worker_info_list]


@dataclass(frozen=True, slots=True)
class GroupClient:
    """A ``GenerationClient`` for the episodes of one group."""

    client: EngineClient
    group_id: int

    async def generate(self, request: GenerationRequest) -> Completion:
        """See ``GenerationClient``."""
        return await self.client.generate(request, self.group_id)
