"""Prompts that are being answered, rewarded and evaluated, while the runner does something else or waits for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rlinf.data.answers import Answer, Prompt
from rlinf.data.generation import SamplingParams
from rlinf.scheduler import WorkerGroup, WorkerGroupFuncResult, wait_all, wait_first

if TYPE_CHECKING:
    from rlinf.workers.inference.logprob_worker import LogprobWorker
    from rlinf.workers.reward.reward_worker import RewardWorker
    from rlinf.workers.rollout.generation_worker import GenerationWorker


@dataclass(frozen=True, slots=True)
class Job:
    """A prompt to be answered.

    Attributes:
        group_id: Number of the prompt within the run.
        prompt: The prompt.
        params: How to draw, and how many answers.
        purpose: ``train`` or ``eval``.
    """

    group_id: int
    prompt: Prompt
    params: SamplingParams
    purpose: str = "train"


@dataclass(slots=True)
class _Running:
    job: Job
    rank: int
    call: WorkerGroupFuncResult


@dataclass(slots=True)
class _Pool:
    """The jobs of one purpose, oldest first, and what has become of them."""

    order: deque[int] = field(default_factory=deque)
    answers: dict[int, list[Answer]] = field(default_factory=dict)


class AnswerPool:
    """Shares prompts out over generation engines, and their answers over reward and inference workers.

    A prompt goes to the rank with the fewest in flight. So do its answers, once they are rewarded, to an inference
    rank, if they are trained on: group by group, so that what is computed does not depend on which ranks were free.

    Whoever waits by ``wait`` or ``take`` keeps the pool going; in between, engines work on what they have been given.
    No thread is involved.

    Args:
        rollout: The engines.
        reward: The rewards.
        max_per_rank: Prompts that one engine is given at a time.
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
        self._queue: deque[Job] = deque()
        self._generating: list[_Running] = []
        self._scoring: list[_Running] = []
        self._evaluating: list[_Running] = []
        self._pools: dict[str, _Pool] = {}

    def submit(self, job: Job) -> None:
        """Have a prompt answered; it keeps its place in ``take``."""
        self._queue.append(job)
        self._pools.setdefault(job.purpose, _Pool()).order.append(job.group_id)

    def num_held(self, purpose: str = "train") -> int:
        """Return how many prompts have been submitted and not been taken."""
        return len(self._pools[purpose].order) if purpose in self._pools else 0

    def take(self, count: int, purpose: str = "train") -> list[list[Answer]]:
        """Wait for the answers to the oldest prompts, and return them: all or, if something fails, none.

        See ``peek``.
        """
        answers = self.peek(count, purpose)
        self.drop(count, purpose)
        return answers

    def peek(self, count: int, purpose: str = "train") -> list[list[Answer]]:
        """Wait for the answers to the oldest prompts, and return them; they stay.

        Args:
            count: Prompts; so many must have been submitted.
            purpose: Of the jobs.

        Returns:
            The answers to each, in the order in which they were asked.

        Raises:
            WorkerError: An engine, a reward or an inference rank failed.
        """
        pool = self._pools[purpose]
        oldest = [pool.order[position] for position in range(count)]
        self._work(lambda: all(group in pool.answers for group in oldest))
        return [pool.answers[group] for group in oldest]

    def drop(self, count: int, purpose: str = "train") -> None:
        """Remove the oldest prompts, which have been answered."""
        pool = self._pools[purpose]
        for _ in range(count):
            del pool.answers[pool.order.popleft()]

    def withdraw(self, count: int, purpose: str = "train") -> None:
        """Take back the prompts submitted last, wherever they are; returns once engines have ended what they had begun.

        Whatever fails, the prompts are taken back.

        Args:
            count: Prompts.
            purpose: Of the jobs.

        Raises:
            WorkerError: An engine failed.
        """
        pool = self._pools[purpose]
        withdrawn = {pool.order.pop() for _ in range(count)}
        for group in withdrawn:
            pool.answers.pop(group, None)

        def is_left(job: Job) -> bool:
            return job.purpose != purpose or job.group_id not in withdrawn

        ended = [running for running in self._generating if not is_left(running.job)]
        self._queue = deque(job for job in self._queue if is_left(job))
        self._generating = [running for running in self._generating if is_left(running.job)]
        self._scoring = [running for running in self._scoring if is_left(running.job)]
        self._evaluating = [running for running in self._evaluating if is_left(running.job)]
        begun: dict[int, list[int]] = {}
        for running in ended:
            begun.setdefault(running.rank, []).append(running.job.group_id)
        aborts = [self._rollout.execute_on(rank).abort(ids, purpose=purpose) for rank, ids in begun.items()]
        wait_all(*aborts, *(running.call for running in ended))

    def wait(self, *results: WorkerGroupFuncResult, asks: bool = True) -> None:
        """Wait for calls of other groups, answering meanwhile.

        Args:
            *results: What is waited for; nothing returns after moving on what can move.
            asks: Whether engines are given further prompts meanwhile; those that get their first weights must not be.

        Raises:
            WorkerError: One of them, an engine, a reward or an inference rank failed.
        """
        self._work(lambda: all(result.done() for result in results), *results, asks=asks)

    def clear(self, *purposes: str) -> None:
        """Forget jobs and their answers, whatever becomes of them.

        Args:
            *purposes: Of the jobs; none means all.
        """
        forgotten = purposes or tuple(self._pools)
        self._queue = deque(job for job in self._queue if job.purpose not in forgotten)
        self._generating = [running for running in self._generating if running.job.purpose not in forgotten]
        self._scoring = [running for running in self._scoring if running.job.purpose not in forgotten]
        self._evaluating = [running for running in self._evaluating if running.job.purpose not in forgotten]
        for purpose in forgotten:
            self._pools.pop(purpose, None)

    def requeue(self) -> None:
        """Have everything answered anew that is not yet; called when workers have been launched again."""
        lost = [running.job for running in self._running()]
        self._generating.clear()
        self._scoring.clear()
        self._evaluating.clear()
        waiting = sorted([*lost, *self._queue], key=lambda job: job.group_id)
        self._queue = deque(waiting)

    def _work(self, is_over: Callable[[], bool], *others: WorkerGroupFuncResult, asks: bool = True) -> None:
        """Move jobs on until ``is_over``."""
        while True:
            if asks:
                self._dispatch()
            self._collect()
            for result in others:
                result.raise_failure()
            if is_over():
                return
            calls = (running.call for running in self._running())
            wait_first(*calls, *(result for result in others if not result.done()))

    def _running(self) -> list[_Running]:
        return [*self._generating, *self._scoring, *self._evaluating]

    def _dispatch(self) -> None:
        load = _load(self._generating, self._rollout)
        while self._queue and min(load) < self._max_per_rank:
            rank = load.index(min(load))
            job = self._queue.popleft()
            call = self._rollout.execute_on(rank).answer(
                job.prompt, group_id=job.group_id, params=job.params, purpose=job.purpose
            )
            self._generating.append(_Running(job, rank, call))
            load[rank] += 1

    def _collect(self) -> None:
        # A job leaves its list when it has got to the next one: none is lost if a call fails in between.
        for running in [entry for entry in self._generating if entry.call.done()]:
            answers: list[Answer] = running.call.wait()[0]
            rank = running.job.group_id % self._reward.world_size
            call = self._reward.execute_on(rank).score(answers)
            self._scoring.append(_Running(running.job, rank, call))
            self._generating.remove(running)
        for running in [entry for entry in self._scoring if entry.call.done()]:
            self._rewarded(running.job, running.call.wait()[0])
            self._scoring.remove(running)
        for running in [entry for entry in self._evaluating if entry.call.done()]:
            self._answered(running.job, running.call.wait()[0])
            self._evaluating.remove(running)

    def _rewarded(self, job: Job, answers: list[Answer]) -> None:
        if self._inference is None or job.purpose != "train":
            self._answered(job, answers)
            return
        load = _load(self._evaluating, self._inference)
        rank = load.index(min(load))
        self._evaluating.append(_Running(job, rank, self._inference.execute_on(rank).compute_logprobs(answers)))

    def _answered(self, job: Job, answers: list[Answer]) -> None:
        self._pools[job.purpose].answers[job.group_id] = answers


def _load(running: list[_Running], group: WorkerGroup[Any]) -> list[int]:
    """Return how many prompts each rank has in flight."""
    load = [0] * group.world_size
    for entry in running:
        load[entry.rank] += 1
    return load
