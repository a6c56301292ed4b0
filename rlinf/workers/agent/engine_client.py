"""How episodes reach the generation engines of a run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import cached_property

from rlinf.data.messages.generation import Completion, GenerationRequest
from rlinf.scheduler import WorkerGroup
from rlinf.workers.rollout.generation_worker import GenerationWorker

MARGIN = 2
"""A request leaves its group's engine when that has this many more in flight than another: prefix caches stay warm, and
no engine is left idle."""


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
            (completion,) = await self._group.execute_on(rank).complete(request).async_wait()
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


def choose_engine(load: list[int], home: int) -> int:
    """Return the engine that a request goes to: its home, unless that has ``MARGIN`` more in flight than another.

    Args:
        load: Requests in flight on each engine.
        home: The engine that has the prefix.

    Example:
        >>> choose_engine([3, 2], 0), choose_engine([4, 2], 0)
        (0, 1)
    """
    # From home on, so that requests which leave one engine do not all go to the same.
    around = [(home + step) % len(load) for step in range(len(load))]
    idlest = min(around, key=lambda rank: load[rank])
    return idlest if load[home] - load[idlest] >= MARGIN else home
