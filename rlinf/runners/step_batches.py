"""The batches that a language model trains on: prompts are submitted ahead, and groups without advantages replaced."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from rlinf.algorithms.filtering import informative_groups
from rlinf.config.schema.root import ReasoningConfig
from rlinf.data.datasets.prompts import PromptSampler
from rlinf.data.messages.generation import SamplingParams
from rlinf.data.messages.responses import Prompt, RewardedGroup
from rlinf.runners.rollout_pool import RolloutPool, RolloutRequest
from rlinf.telemetry.responses import response_metrics


@dataclass(frozen=True, slots=True)
class StepBatch:
    """The responses of a step.

    Attributes:
        groups: The responses to ``data.rollout_batch_size`` prompts, in the order of submission. Where too few groups
            are informative (have non-zero advantages), others fill up; the actor masks them.
        num_prompts: Prompts that were consumed for it.
        num_missing: Groups among them that only fill up.
        num_tokens: Of all responses, replaced ones included.
        metrics: Of all responses, replaced ones included.
    """

    groups: list[RewardedGroup]
    num_prompts: int = 0
    num_missing: int = 0
    num_tokens: int = 0
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def group_ids(self) -> list[int]:
        """The groups, in order."""
        return [group.group_id for group in self.groups]


class BatchFiller:
    """Submits prompts, as many ahead as ``algorithm.staleness_threshold`` allows, and makes batches of the responses.

    Steps consume prompts in the order of submission, whichever finishes first: which groups are replaced, and by which,
    does not depend on time, and long responses are not left out more often than others. Requests that a step turns out
    not to need are cancelled: a later step submits their prompts again, with later weights.

    With ``algorithm.carry_over`` a step trains on the groups that are done first, instead of waiting for the slowest:
    some more are submitted than it needs, and it leaves as many of the oldest ones to the next steps. One that would
    exceed the bound on staleness is waited for.

    A step that replaces groups consumes more prompts than one that does not, so those submitted ahead are trained on no
    later than without: the bound on staleness holds.

    Args:
        cfg: The recipe.
        pool: Generates responses.
        sampler: Samples prompts.
    """

    def __init__(self, cfg: ReasoningConfig, pool: RolloutPool, sampler: PromptSampler[Prompt]) -> None:
        algorithm, data = cfg.algorithm, cfg.data
        self._pool, self._sampler = pool, sampler
        self._size = data.rollout_batch_size
        self._generation_batch = data.gen_batch_size or 1
        self._replaces = algorithm.replaces_groups
        self._limit = cfg.max_prompts_per_step
        self._ahead = algorithm.staleness_threshold or 0
        self._num_carried = int(algorithm.carry_over * self._size)
        # With how many steps left each group was begun.
        self._begun: dict[int, int] = {}
        self._params = SamplingParams.of(algorithm.sampling_params, n=algorithm.group_size)
        self._advantage = algorithm.advantage

    def fill(self, steps_left: int) -> StepBatch:
        """Wait for the responses of a step: it gets them all or, if something fails, none.

        They stay in the pool, the first ``num_prompts`` requests there, until the step has been made.

        Args:
            steps_left: Steps of the run that are still to be made, this one among them.

        Raises:
            WorkerError: An engine or a reward failed.
        """
        if self._num_carried:
            return self._fill_with_done(steps_left)
        ahead = min(self._ahead, steps_left - 1) * self._size
        informative: list[bool] = []
        examined = self._size
        while True:
            self._submit(examined, ahead)
            groups = self._pool.peek(examined)
            informative += [self._is_informative(group) for group in groups[len(informative) :]]
            missing = self._size - sum(informative)
            if not missing or examined == self._limit:
                break
            examined = min(examined + missing, self._limit)
        cancelled = self._cancel(examined + ahead)
        fillers = [number for number, useful in enumerate(informative) if not useful][:missing]
        chosen = sorted([number for number, useful in enumerate(informative) if useful] + fillers)
        metrics = response_metrics(groups)
        if self._replaces:
            metrics |= {
                "rollout/prompts_asked": float(examined),
                "rollout/prompts_withdrawn": float(cancelled),
                "rollout/filtered_groups": 1 - sum(informative) / examined,
                "rollout/missing_groups": float(missing),
            }
        return StepBatch(
            [groups[number] for number in chosen],
            num_prompts=examined,
            num_missing=missing,
            num_tokens=sum(sum(group.num_tokens) for group in groups),
            metrics=metrics,
        )

    def _fill_with_done(self, steps_left: int) -> StepBatch:
        """Take the groups that are done first; of the oldest ``carry_over`` may be left for later."""
        # A group that is carried waits for a step more than the others: one less is submitted ahead.
        ahead = (self._ahead - 1) * self._size + self._num_carried
        before = set(self._pool.unconsumed())
        self._submit(self._size, min(ahead, (steps_left - 1) * self._size))
        numbers = self._pool.unconsumed()
        self._begun = {number: self._begun[number] if number in before else steps_left for number in numbers}
        oldest = numbers[: self._size + self._num_carried]
        due = {number for number in oldest if self._begun[number] - steps_left >= self._ahead}
        groups = self._pool.peek_done(self._size, among=len(oldest), required=due)
        newest = max(numbers.index(group.group_id) for group in groups)
        metrics = response_metrics(groups) | {"rollout/carried_groups": float(newest + 1 - self._size)}
        num_tokens = sum(sum(group.num_tokens) for group in groups)
        return StepBatch(groups, num_prompts=self._size, num_tokens=num_tokens, metrics=metrics)

    def _submit(self, examined: int, ahead: int) -> None:
        """Submit what this step examines, in whole generation batches, and what later steps train on."""
        wanted = -(-examined // self._generation_batch) * self._generation_batch
        while self._pool.num_unconsumed() < wanted + ahead:
            number, prompt = self._sampler.sample()
            self._pool.submit(RolloutRequest(number, prompt, self._params))

    def _cancel(self, wanted: int) -> int:
        """Cancel the requests beyond ``wanted``, and return their number."""
        surplus = self._pool.num_unconsumed() - wanted
        if surplus > 0:
            # First, so that no prompt is submitted twice, or not at all, if an engine dies in between.
            self._sampler.position -= surplus
            self._pool.cancel(surplus)
        return max(surplus, 0)

    def _is_informative(self, group: RewardedGroup) -> bool:
        if not self._replaces:
            return True
        scores = torch.tensor(group.rewards)
        ids = torch.zeros(len(group), dtype=torch.int64)
        return bool(informative_groups(scores, ids, self._advantage).all())
