"""How episodes reach the generation engines of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

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

    def at(self, group_id: int, *, joins: bool = False) -> GroupClient:
        """Return a client for the episodes of a group, which have an engine in common.

        Args:
            group_id: The group's number.
            joins: Whether requests that come at the same time are one call, which returns when all are complete.
        """
        return GroupClient(self, group_id, joins=joins)

    async def generate(self, *requests: GenerationRequest, home: int) -> list[Completion]:
        """Have requests completed by one engine.

        Args:
            *requests: One response to a prompt each.
            home: Number of the engine that has the prefix, modulo the number of engines.

        Raises:
            WorkerDiedError: The engine has died.
            WorkerError: The engine failed.
        """
        group = self._group or await self._look_up()
        try:
            return await self._complete(group, requests, home)
        except WorkerDiedError:
            launched = await self._look_up()
            if launched is group:
                raise
        return await self._complete(launched, requests, home)

    async def _look_up(self) -> WorkerGroup[GenerationWorker]:
        # It waits for the group's launch.
        found = await asyncio.to_thread(WorkerGroup.from_group_name, GenerationWorker, self._name)
        if self._group is None or _processes(found) != _processes(self._group):
            self._group, self._load = found, [0] * found.world_size
        return self._group

    async def _complete(
        self, group: WorkerGroup[GenerationWorker], requests: Sequence[GenerationRequest], home: int
    ) -> list[Completion]:
        load = self._load
        rank = choose_engine(load, home % len(load))
        load[rank] += len(requests)
        try:
            named = [replace(request, prefix_group=str(home)) for request in requests]
            (completions,) = await group.execute_on(rank).complete(*named).async_wait()
        except asyncio.CancelledError:
            group.execute_on(rank).abort_requests([request.request_id for request in requests])
            raise
        finally:
            load[rank] -= len(requests)
        return completions  # type: ignore[no-any-return]


def _processes(group: WorkerGroup[GenerationWorker]) -> list[tuple[str, int]]:
    return [(each.node_ip, each.pid) for each in group.worker_info_list]


class GroupClient:
    """A ``GenerationClient`` for the episodes of one group.

    Args:
        client: Reaches the engines.
        group_id: The group's number.
        joins: See ``EngineClient.at``.
    """

    def __init__(self, client: EngineClient, group_id: int, *, joins: bool = False) -> None:
        self._client, self._group_id, self._joins = client, group_id, joins
        self._waiting: list[tuple[GenerationRequest, asyncio.Future[Completion]]] = []
        self._sending: set[asyncio.Task[None]] = set()

    async def generate(self, request: GenerationRequest) -> Completion:
        """See ``GenerationClient``."""
        if not self._joins:
            return (await self._client.generate(request, home=self._group_id))[0]
        found: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, found))
        if len(self._waiting) == 1:
            sending = asyncio.ensure_future(self._send())
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)
        return await found

    async def _send(self) -> None:
        """Send what has come in the same round of the event loop."""
        joined, self._waiting = self._waiting, []
        task = asyncio.ensure_future(self._client.generate(*(request for request, _ in joined), home=self._group_id))
        for _, found in joined:
            found.add_done_callback(lambda _: task.cancel() if all(each.cancelled() for _, each in joined) else None)
        await asyncio.wait({task})
        for number, (_, found) in enumerate(joined):
            if found.done():
                continue
            if (error := task.exception()) is not None:
                found.set_exception(error)
            else:
                found.set_result(task.result()[number])
