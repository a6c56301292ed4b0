"""Balances rollout requests over generation engines, and their responses over reward and inference workers."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from rlinf.data.messages.generation import SamplingParams
from rlinf.data.messages.responses import Prompt, RewardedGroup
from rlinf.data.messages.routing import by_rank, rank_of
from rlinf.scheduler import CompletionQueue, WorkerGroup, WorkerGroupFuncResult, wait_all

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


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """A request in flight: where it is, the call, and what is known of the responses if they are rewarded."""

    request: RolloutRequest
    stage: Literal["rollout", "reward", "inference"]
    rank: int
    result: WorkerGroupFuncResult
    rewarded: RewardedGroup | None = None


@dataclass(slots=True)
class _Split:
    """The requests of one split by number, oldest first, and what is known of the responses to finished ones."""

    requests: dict[int, RolloutRequest] = field(default_factory=dict)
    responses: dict[int, RewardedGroup] = field(default_factory=dict)


class RolloutPool:
    """Sends requests to generation engines, and has their responses rewarded and log-probabilities computed.

    A request goes to the rank with the fewest in flight. So do its responses, once they are rewarded, to an inference
    rank, if they are trained on: group by group, so that the results do not depend on which ranks were idle. One call
    brings back responses that are rewarded at once; the others take no room of an engine while they wait for rewards.

    Tokens never come here: engines send them to the reward rank of their group, which keeps them until they are
    discarded. The pool holds ids, lengths, versions and rewards.

    Calls of ``wait``, ``peek`` and ``pop`` move requests on; in between, workers process what they have been sent. No
    thread is involved.

    Args:
        rollout: The engines.
        reward: Scores responses, and keeps them.
        max_per_rank: Requests that one engine has in flight at most.
        inference: Recomputes log-probabilities; None leaves them to the actor.
        inference_is_sharded: Whether its ranks hold one model together, so that each call is made to all of them.
    """

    def __init__(
        self,
        rollout: WorkerGroup[GenerationWorker],
        reward: WorkerGroup[RewardWorker],
        *,
        max_per_rank: int,
        inference: WorkerGroup[LogprobWorker] | None = None,
        inference_is_sharded: bool = False,
    ) -> None:
        self._rollout, self._reward, self._inference = rollout, reward, inference
        self._max_per_rank = max_per_rank
        self._inference_is_sharded = inference_is_sharded
        self._queue: deque[RolloutRequest] = deque()
        # In the order in which they were made; those of a completed call that is not in it are ignored.
        self._calls: dict[_Call, None] = {}
        self._completed: CompletionQueue[_Call | None] = CompletionQueue()
        self._splits: dict[str, _Split] = {}
        # Groups whose tokens reward ranks still keep.
        self._discarded: list[tuple[str, list[int]]] = []

    def submit(self, request: RolloutRequest) -> None:
        """Add a request; ``peek`` and ``pop`` return the responses in the order of submission."""
        self._queue.append(request)
        self._splits.setdefault(request.split, _Split()).requests[request.group_id] = request

    def num_unconsumed(self, split: str = "train") -> int:
        """Return the number of requests that have been submitted and not been discarded."""
        return len(self.unconsumed(split))

    def unconsumed(self, split: str = "train") -> list[int]:
        """Return the numbers of these requests, oldest first."""
        return list(self._splits[split].requests) if split in self._splits else []

    def pop(self, count: int, split: str = "train") -> list[RewardedGroup]:
        """Wait for the responses to the oldest requests, and remove them: all or, if something fails, none.

        See ``peek``.
        """
        responses = self.peek(count, split)
        self.discard(count, split)
        return responses

    def peek(self, count: int, split: str = "train") -> list[RewardedGroup]:
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
        oldest = list(itertools.islice(held.requests, count))
        missing = oldest[::-1]

        def is_over() -> bool:
            while missing and missing[-1] in held.responses:
                missing.pop()
            return not missing

        self._work(is_over)
        return [held.responses[group] for group in oldest]

    def peek_done(
        self, count: int, *, among: int, required: Set[int] = frozenset(), split: str = "train"
    ) -> list[RewardedGroup]:
        """Wait until enough of the oldest requests are done, and return their responses; they become the oldest ones.

        Args:
            count: Number of requests that are taken.
            among: Number of the oldest requests that they are taken from.
            required: Numbers of requests among these that are taken in any case.
            split: Of the requests.

        Returns:
            The responses to each, in the order of submission.

        Raises:
            WorkerError: An engine, a reward or an inference rank failed.
        """
        held = self._splits[split]
        oldest = list(itertools.islice(held.requests, among))
        optional = [group for group in oldest if group not in required]

        def done() -> list[int]:
            return [group for group in optional if group in held.responses][: count - len(required)]

        self._work(lambda: required <= held.responses.keys() and len(done()) == count - len(required))
        taken = required | set(done())
        order = sorted(held.requests, key=lambda group: group not in taken)  # stable
        held.requests = {group: held.requests[group] for group in order}
        return [held.responses[group] for group in order[:count]]

    def discard(self, count: int, split: str = "train") -> None:
        """Remove the oldest requests, which are finished, with the tokens of their responses."""
        held = self._splits[split]
        removed = list(itertools.islice(held.requests, count))
        for group in removed:
            del held.requests[group], held.responses[group]
        self._discarded.append((split, removed))

    def cancel(self, count: int, split: str = "train") -> None:
        """Cancel the requests submitted last, wherever they are; returns once engines have ended those in flight.

        The requests are removed even if an engine fails meanwhile.

        Args:
            count: Number of requests.
            split: Of the requests.

        Raises:
            WorkerError: An engine or a reward failed.
        """
        held = self._splits[split]
        cancelled = {held.requests.popitem()[0] for _ in range(count)}
        for group in cancelled:
            held.responses.pop(group, None)

        def is_kept(request: RolloutRequest) -> bool:
            return request.split != split or request.group_id not in cancelled

        ended = [call for call in self._calls if call.stage == "rollout" and not is_kept(call.request)]
        self._keep(is_kept)
        generating: dict[int, list[int]] = {}
        for call in ended:
            generating.setdefault(call.rank, []).append(call.request.group_id)
        aborts = [self._rollout.execute_on(rank).abort(ids, split=split) for rank, ids in generating.items()]
        wait_all(*aborts, *(call.result for call in ended))
        # They may be submitted again: by then, what is left of them must be gone.
        wait_all(*self._forget(split, cancelled))

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

        Raises:
            WorkerError: A reward failed.
        """
        removed = splits or tuple(self._splits)
        self._keep(lambda request: request.split not in removed)
        for split in removed:
            self._splits.pop(split, None)
        wait_all(*(self._reward.clear(split) for split in removed))

    def requeue(self, *, finished: bool = False) -> None:
        """Process every unfinished request anew; called when workers have been launched again.

        Args:
            finished: Whether to process the finished ones anew too: the tokens of their responses are lost.
        """
        self._keep(lambda request: False)
        for held in self._splits.values():
            if finished:
                held.responses.clear()
            self._queue.extend(r for number, r in held.requests.items() if number not in held.responses)
        self._queue = deque(sorted(self._queue, key=lambda request: request.group_id))

    def _keep(self, is_kept: Callable[[RolloutRequest], bool]) -> None:
        """Remove all unfinished requests but some."""
        self._queue = deque(request for request in self._queue if is_kept(request))
        self._calls = {call: None for call in self._calls if is_kept(call.request)}

    def _work(self, is_over: Callable[[], bool], *others: WorkerGroupFuncResult, submits: bool = True) -> None:
        """Move requests on until ``is_over``."""
        while self._discarded:
            self._forget(*self._discarded.pop())
        for result in others:
            self._completed.add(result, None)
        while True:
            if submits:
                self._dispatch()
            self._collect()
            for result in others:
                result.raise_failure()
            if is_over():
                return
            self._completed.wait()

    def _dispatch(self) -> None:
        if not self._queue:
            return
        load = self._load("rollout", self._rollout)
        while self._queue and min(load) < self._max_per_rank:
            rank = load.index(min(load))
            request = self._queue.popleft()
            result = self._rollout.execute_on(rank).generate(
                request.prompt, group_id=request.group_id, params=request.params, split=request.split
            )
            self._follow(_Call(request, "rollout", rank, result))
            load[rank] += 1

    def _collect(self) -> None:
        completed = deque(self._completed.pop())
        while completed:
            call = completed.popleft()
            if call is None or call not in self._calls:
                continue
            # A call is removed when its request has got to the next one: none is lost if a call fails in between, and
            # a failure is raised until the request is removed or processed anew.
            try:
                self._advance(call, call.result.wait()[0])
            except BaseException:
                for rest in (call, *completed):
                    if rest is not None:
                        self._completed.add(rest.result, rest)
                raise
            del self._calls[call]

    def _advance(self, call: _Call, returned: RewardedGroup | None) -> None:
        """Move a request on to its next stage; calls of rewards return a group, and those of engines may."""
        request, rewarded = call.request, call.rewarded or returned
        if rewarded is None:
            rank = rank_of(request.group_id, self._reward.world_size)
            result = self._reward.execute_on(rank).score(request.split, request.group_id)
            self._follow(_Call(request, "reward", rank, result))
        elif call.stage != "inference" and self._inference is not None and request.split == "train":
            load = self._load("inference", self._inference)
            rank = 0 if self._inference_is_sharded else load.index(min(load))
            called = self._inference if self._inference_is_sharded else self._inference.execute_on(rank)
            result = called.compute_logprobs(request.group_id)
            self._follow(_Call(request, "inference", rank, result, rewarded))
        else:
            self._splits[request.split].responses[request.group_id] = rewarded

    def _follow(self, call: _Call) -> None:
        self._calls[call] = None
        self._completed.add(call.result, call)

    def _load(self, stage: str, group: WorkerGroup[Any]) -> list[int]:
        """Return the number of requests that each rank of a group has in flight."""
        load = [0] * group.world_size
        for call in self._calls:
            if call.stage == stage:
                load[call.rank] += 1
        return load

    def _forget(self, split: str, group_ids: Iterable[int]) -> list[WorkerGroupFuncResult]:
        """Have reward ranks forget groups of responses."""
        numbers = by_rank(group_ids, self._reward.world_size)
        return [self._reward.execute_on(rank).discard(split, ids) for rank, ids in numbers.items()]
