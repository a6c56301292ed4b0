"""Balances requests over rollout ranks: each goes to the rank that has been idle for longest."""

from __future__ import annotations

from rlinf.data.messages.action_request import ActionRequest
from rlinf.scheduler import Channel
from rlinf.scheduler.comm.work import AsyncWork

_IDLE = "idle"
_ENDED = "ended"

Ended = dict[str, int]


class LoadBalancer:
    """Gives requests of env ranks to idle rollout ranks in the decoupled mode; both kinds hold a copy of the handle.

    A rollout rank has a queue of its own in the channel, in which it finds requests and the ends of rollouts in order.
    One item of the channel counts the env ranks that have ended a rollout: its holder may change it.

    Args:
        channel: Used for nothing else.
        num_env_workers: World size of the env group.
        num_rollout_workers: World size of the rollout group.
    """

    def __init__(self, channel: Channel, *, num_env_workers: int, num_rollout_workers: int) -> None:
        self.channel = channel
        self.num_env_workers = num_env_workers
        self.num_rollout_workers = num_rollout_workers

    @classmethod
    def open(cls, channel: Channel, *, num_env_workers: int, num_rollout_workers: int) -> LoadBalancer:
        """Return the handle of an unused load balancer.

        Args:
            channel: A new channel.
            num_env_workers: World size of the env group.
            num_rollout_workers: World size of the rollout group.
        """
        channel.put({}, key=_ENDED)
        return cls(channel, num_env_workers=num_env_workers, num_rollout_workers=num_rollout_workers)

    def submit(self, request: ActionRequest) -> AsyncWork[int]:
        """Give a request to the rollout rank that has been idle for longest, or that is idle next.

        Returns:
            The work of finding it: the rank that will answer.
        """

        def hand_over(rank: int) -> int:
            self.channel.put(request, key=_queue(rank))
            return rank

        return self.channel.get(key=_IDLE, async_op=True).then(hand_over)

    def end_rollout(self, rollout: str) -> None:
        """Note that an env rank has ended a rollout; the last one ends it for all rollout ranks."""
        ended: Ended = self.channel.get(key=_ENDED)
        ended[rollout] = ended.get(rollout, 0) + 1
        if ended[rollout] == self.num_env_workers:
            del ended[rollout]
            # Before others may change the count: so rollouts end in the same order for every rank.
            for rank in range(self.num_rollout_workers):
                self.channel.put(None, key=_queue(rank))
        self.channel.put(ended, key=_ENDED)

    def mark_idle(self, rank: int) -> None:
        """Note that a rollout rank can take one request."""
        self.channel.put(rank, key=_IDLE)

    def next_request(self, rank: int) -> ActionRequest | None:
        """Return the next request given to a rollout rank, or None at the end of a rollout."""
        request: ActionRequest | None = self.channel.get(key=_queue(rank))
        return request


def _queue(rank: int) -> str:
    return f"rollout/{rank}"
