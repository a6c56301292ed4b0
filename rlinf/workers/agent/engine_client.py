"""How episodes reach the generation engines of a run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import cached_property

from rlinf.data.messages.generation import Completion, GenerationRequest
from rlinf.hybrid_engines.generation.engine_choice import choose_engine
from rlinf.scheduler import WorkerGroup
from rlinf.workers.rollout.generation_worker import GenerationWorker


class EngineClient:
    """Sends requests to the ranks of a rollout group.

    Args:
        group_name: The group's name.
    """

    def __init__(self, group_name: str) -> None:
        self._name = group_name
        self._load: list[int] = []

    @cached_property
    def _group(self) -> WorkerGroup[GenerationWorker]:
        return WorkerGroup.from_group_name(GenerationWorker, self._name)

    def at(self, group_id: int) -> GroupClient:
        """Return a client for the episodes of a group, which have an engine in common."""
        return GroupClient(self, group_id)

    async def generate(self, request: GenerationRequest, home: int) -> Completion:
        """Have a request completed.

        Args:
            request: One response to a prompt.
            home: Number of the engine that has the prefix, modulo the number of engines.

        Raises:
            WorkerError: The engine failed.
        """
        if "_group" not in vars(self):  # the look-up waits for the group's launch
            await asyncio.to_thread(lambda: self._group)
        if not self._load:
            self._load = [0] * self._group.world_size
        rank = choose_engine(self._load, home % len(self._load))
        self._load[rank] += 1
        try:
            named = replace(request, prefix_group=str(home))
            (completion,) = await self._group.execute_on(rank).complete(named).async_wait()
        except asyncio.CancelledError:
            self._group.execute_on(rank).abort_requests([request.request_id])
            raise
        finally:
            self._load[rank] -= 1
        return completion  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class GroupClient:
    """A ``GenerationClient`` for the episodes of one group."""

    client: EngineClient
    group_id: int

    async def generate(self, request: GenerationRequest) -> Completion:
        """See ``GenerationClient``."""
        return await self.client.generate(request, self.group_id)
