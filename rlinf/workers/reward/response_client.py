"""How engines, inference ranks and the actor exchange responses with the reward ranks that keep them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cached_property
from typing import TypeAlias

import torch

from rlinf.data.messages.responses import ResponseBatch, ResponseGroup, RewardedGroup
from rlinf.data.messages.routing import by_rank, rank_of
from rlinf.scheduler import WorkerGroup, wait_all
from rlinf.workers.reward.reward_worker import RewardWorker

_Waiting: TypeAlias = "tuple[ResponseGroup, asyncio.Future[RewardedGroup | None]]"
"""A group, and what the reward rank returns of it."""

_MAX_TOGETHER = 16
"""Groups that one call puts: more of them would take longer than ``RewardWorker.put_responses`` waits."""


class ResponseClient:
    """Calls the ranks of a reward group that keep responses.

    Args:
        group_name: The reward group's name.
    """

    def __init__(self, group_name: str) -> None:
        self._name = group_name
        # Groups that were put since the last call of a rank, by rank and split.
        self._waiting: dict[tuple[int, str], list[_Waiting]] = {}
        self._sending: set[asyncio.Future[None]] = set()

    @cached_property
    def _group(self) -> WorkerGroup[RewardWorker]:
        return WorkerGroup.from_group_name(RewardWorker, self._name)

    async def put(self, split: str, group: ResponseGroup) -> RewardedGroup | None:
        """Send a group to the rank that rewards it.

        Args:
            split: ``train`` or ``eval``.
            group: Generated, not rewarded yet.

        Returns:
            See ``RewardWorker.put_responses``.

        Raises:
            WorkerDiedError: The rank is gone.
        """
        if "_group" not in vars(self):  # the look-up waits for the group's launch
            await asyncio.to_thread(lambda: self._group)
        key = rank_of(group.group_id, self._group.world_size), split
        waiting = self._waiting.setdefault(key, [])
        rewarded: asyncio.Future[RewardedGroup | None] = asyncio.get_running_loop().create_future()
        waiting.append((group, rewarded))
        if len(waiting) == 1:
            sending = asyncio.ensure_future(self._send_all(*key))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)
        return await rewarded

    async def _send_all(self, rank: int, split: str) -> None:
        """Send what has been put for a rank since: an engine ends many responses at the same step."""
        waiting = self._waiting.pop((rank, split))
        parts = (waiting[begin : begin + _MAX_TOGETHER] for begin in range(0, len(waiting), _MAX_TOGETHER))
        await asyncio.gather(*(self._send(rank, split, part) for part in parts))

    async def _send(self, rank: int, split: str, part: Sequence[_Waiting]) -> None:
        try:
            groups = [group for group, _ in part]
            (found,) = await self._group.execute_on(rank).put_responses(split, *groups).async_wait()
        except Exception as error:  # noqa: BLE001 - the boundary: each caller of ``put`` raises it
            for _, rewarded in part:
                if not rewarded.done():
                    rewarded.set_exception(error)
            return
        for (_, rewarded), each in zip(part, found, strict=True):
            if not rewarded.done():
                rewarded.set_result(each)

    def fetch(self, group_ids: Sequence[int]) -> ResponseBatch:
        """Return the responses of groups that are trained on.

        Args:
            group_ids: One at least; the result has their order.

        Raises:
            WorkerDiedError: A rank is gone.
            WorkerError: A rank does not have a group any more.
        """
        numbers = by_rank(group_ids, self._group.world_size)
        calls = [self._group.execute_on(rank).get_responses(part) for rank, part in numbers.items()]
        batches = {
            number: batch
            for part, found in zip(numbers.values(), wait_all(*calls), strict=True)
            for number, batch in zip(part, found[0], strict=True)
        }
        return ResponseBatch.concat([batches[number] for number in group_ids])

    def put_trainer_logprobs(self, group_id: int, logprobs: torch.Tensor) -> None:
        """Add what an inference rank has computed to a group that is trained on.

        Args:
            group_id: The group's number.
            logprobs: float32 [T].

        Raises:
            WorkerError: The rank is gone, or does not have the group any more.
        """
        rank = rank_of(group_id, self._group.world_size)
        self._group.execute_on(rank).put_trainer_logprobs(group_id, logprobs).wait()
