"""Balances rollout requests over generation engines, and their responses over reward and inference workers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rlinf.data.messages.answers import Answer, Prompt
from rlinf.data.messages.generation import SamplingParams
from rlinf.scheduler import WorkerGroup, WorkerGroupFuncResult, wait_all, wait_first

if TYPE_CHECKING:
    from rlinf.workers.inference.logprob_worker import LogprobWorker
    from rlinf.workers.reward.reward_worker import RewardWorker
    from rlinf.workers.rollout.generation_worker import GenerationWorker


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """A prompt to generate responses to.

    Attributes:
        group_id: Number of the prompt within the run.
        prompt: The prompt.
        params: How to sample, and how many responses.
        split: ``train`` or ``eval``.
    """

    group_id: int
    prompt: Prompt
    params: SamplingParams
    split: str = "train"


@dataclass(slots=True)
class _Call:
    """A request in flight: the rank that works on it, and the call."""

    request: RolloutRequest
    rank: int
    result: WorkerGroupFuncResult


@dataclass(slots=True)
class _Split:
    """The requests of one split, oldest first, and the responses to those that are finished."""

    order: deque[int] = field(default_factory=deque)
    responses: dict[int, list[Answer]] = field(default_factory=dict)


class RolloutPool:
    """Sends requests to generation engines, and the responses on to reward and inference workers.

    A request goes to the rank with the fewest in flight. So do its responses, once they are rewarded, to an inference
    rank, if they are trained on: group by group, so that the results do not depend on which ranks were idle.

    Calls of ``wait``, ``peek`` and ``pop`` move requests on; in between, workers process what they have been sent. No
    thread is involved. The pool passes on what one worker returned to the next and never looks into it.

    Args:
        rollout: The engines.
        reward: The rewards.
        max_per_rank: Requests that one engine has in flight at most.
        inference: Recomputes log-probabilities; None leaves them to the actor.
    """

    def __init__(
        self,
        rollout: WorkerGroup[GenerationWorker],
        reward: WorkerGroup[RewardWorker],
        *,
        max_per_rank: int,
        inference: WorkerGroup[LogprobWorker] | None = None,
    ) -> None:
        self._rollout, self._reward, self._inference = rollout, reward, inference
        self._max_per_rank = max_per_rank
        self._queue: deque[RolloutRequest] = deque()
        self._generating: list[_Call] = []
        self._rewarding: list[_Call] = []
        self._scoring: list[_Call] = []
        self._splits: dict[str, _Split] = {}

    def submit(self, request: RolloutRequest) -> None:
        """Add a request; ``peek`` and ``pop`` return the responses in the order of submission."""
        self._queue.append(request)
        self._splits.setdefault(request.split, _Split()).order.append(request.group_id)

    def num_unconsumed(self, split: str = "train") -> int:
        """Return the number of requests that have been submitted and not been popped."""
        return len(self._splits[split].order) if split in self._splits else 0

    def pop(self, count: int, split: str = "train") -> list[list[Answer]]:
        """Wait for the responses to the oldest requests, and remove them: all or, if something fails, none.

        See ``peek``.
        """
        responses = self.peek(count, split)
        self.discard(count, split)
        return responses

    def peek(self, count: int, split: str = "train") -> list[list[Answer]]:
        """Wait for the responses to the oldest requests, and return them; they stay in the pool.

        Args:
            count: Number of requests; as many must have been submitted.
            split: Of the requests.

        Returns:
            The responses to each, in the order of submission.

        Raises:
            WorkerError: An engine, a reward or an inference rank failed.
        """
        held = self._splits[split]
        oldest = [held.order[position] for position in range(count)]
        self._work(lambda: all(group in held.responses for group in oldest))
        return [held.responses[group] for group in oldest]

    def discard(self, count: int, split: str = "train") -> None:
        """Remove the oldest requests, which are finished."""
        held = self._splits[split]
        for _ in range(count):
            del held.responses[held.order.popleft()]

    def cancel(self, count: int, split: str = "train") -> None:
        """Cancel the requests submitted last, wherever they are; returns once engines have ended those in flight.

        The requests are removed even if an engine fails meanwhile.

        Args:
            count: Number of requests.
            split: Of the requests.

        Raises:
            WorkerError: An engine failed.
        """
        held = self._splits[split]
        cancelled = {held.order.pop() for _ in range(count)}
        for group in cancelled:
            held.responses.pop(group, None)

        def is_kept(request: RolloutRequest) -> bool:
            return request.split != split or request.group_id not in cancelled

        ended = [call for call in self._generating if not is_kept(call.request)]
        self._keep(is_kept)
        by_rank: dict[int, list[int]] = {}
        for call in ended:
            by_rank.setdefault(call.rank, []).append(call.request.group_id)
        aborts = [self._rollout.execute_on(rank).abort(ids, purpose=split) for rank, ids in by_rank.items()]
        wait_all(*aborts, *(call.result for call in ended))

    def wait(self, *results: WorkerGroupFuncResult, submits: bool = True) -> None:
        """Wait for calls of other groups, and move requests on meanwhile.

        Args:
            *results: The calls; without any it returns after moving on what can move.
            submits: Whether engines are sent further requests meanwhile; not while they get their first weights.

        Raises:
            WorkerError: One of them, an engine, a reward or an inference rank failed.
        """
        self._work(lambda: all(result.done() for result in results), *results, submits=submits)

    def clear(self, *splits: str) -> None:
        """Remove all requests of splits with their responses; calls in flight are ignored.

        Args:
            *splits: None means all.
        """
        removed = splits or tuple(self._splits)
        self._keep(lambda request: request.split not in removed)
        for split in removed:
            self._splits.pop(split, None)

    def requeue(self) -> None:
        """Process every unfinished request anew; called when workers have been launched again."""
        lost = [call.request for call in self._in_flight()]
        waiting = sorted([*lost, *self._queue], key=lambda request: request.group_id)
        self._keep(lambda request: False)
        self._queue = deque(waiting)

    def _keep(self, is_kept: Callable[[RolloutRequest], bool]) -> None:
        """Remove all unfinished requests but some."""
        self._queue = deque(request for request in self._queue if is_kept(request))
        for stage in (self._generating, self._rewarding, self._scoring):
            stage[:] = [call for call in stage if is_kept(call.request)]

    def _work(self, is_over: Callable[[], bool], *others: WorkerGroupFuncResult, submits: bool = True) -> None:
        """Move requests on until ``is_over``."""
        while True:
            if submits:
                self._dispatch()
            self._collect()
            for result in others:
                result.raise_failure()
            if is_over():
                return
            calls = (call.result for call in self._in_flight())
            wait_first(*calls, *(result for result in others if not result.done()))

    def _in_flight(self) -> list[_Call]:
        return [*self._generating, *self._rewarding, *self._scoring]

    def _dispatch(self) -> None:
        load = _load(self._generating, self._rollout)
        while self._queue and min(load) < self._max_per_rank:
            rank = load.index(min(load))
            request = self._queue.popleft()
            result = self._rollout.execute_on(rank).answer(
                request.prompt, group_id=request.group_id, params=request.params, purpose=request.split
            )
            self._generating.append(_Call(request, rank, result))
            load[rank] += 1

    def _collect(self) -> None:
        # A call leaves its list when its request has got to the next one: none is lost if a call fails in between.
        for call in [call for call in self._generating if call.result.done()]:
            self._reward_responses(call.request, call.result.wait()[0])
            self._generating.remove(call)
        for call in [call for call in self._rewarding if call.result.done()]:
            self._score_responses(call.request, call.result.wait()[0])
            self._rewarding.remove(call)
        for call in [call for call in self._scoring if call.result.done()]:
            self._finish(call.request, call.result.wait()[0])
            self._scoring.remove(call)

    def _reward_responses(self, request: RolloutRequest, responses: list[Answer]) -> None:
        rank = request.group_id % self._reward.world_size
        self._rewarding.append(_Call(request, rank, self._reward.execute_on(rank).score(responses)))

    def _score_responses(self, request: RolloutRequest, responses: list[Answer]) -> None:
        """Have log-probabilities computed of responses that are trained on, if there is an inference group."""
        if self._inference is None or request.split != "train":
            self._finish(request, responses)
            return
        load = _load(self._scoring, self._inference)
        rank = load.index(min(load))
        self._scoring.append(_Call(request, rank, self._inference.execute_on(rank).compute_logprobs(responses)))

    def _finish(self, request: RolloutRequest, responses: list[Answer]) -> None:
        self._splits[request.split].responses[request.group_id] = responses


def _load(calls: list[_Call], group: WorkerGroup[Any]) -> list[int]:
    """Return the number of requests that each rank has in flight."""
    load = [0] * group.world_size
    for call in calls:
        load[call.rank] += 1
    return load
