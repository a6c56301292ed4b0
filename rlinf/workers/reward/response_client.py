"""How engines, inference ranks and the actor exchange responses with the reward ranks that keep them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cached_property

import torch

from rlinf.data.messages.responses import ResponseBatch, ResponseGroup, RewardedGroup
from rlinf.data.messages.routing import by_rank, rank_of
from rlinf.scheduler import WorkerGroup, wait_all
from rlinf.workers.reward.reward_worker import RewardWorker


class ResponseClient:
    """Calls the ranks of a reward group that keep responses.

    Args:
        group_name: The reward group's name.
    """

    def __init__(self, group_name: str) -> None:
        self._name = group_name

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
        rank = rank_of(group.group_id, self._group.world_size)
        (found,) = await self._group.execute_on(rank).put_responses(split, group).async_wait()
        return found  # type: ignore[no-any-return]

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
