"""What the steps of a language model train on: prompts are asked ahead, and groups that teach nothing replaced."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from rlinf.algorithms.filtering import informative_groups
from rlinf.config.schema.root import ReasoningConfig
from rlinf.data.answers import Answer, Prompt
from rlinf.data.prompts import PromptSampler
from rlinf.runners.answer_pool import AnswerPool, Job
from rlinf.telemetry.answers import answer_metrics
from rlinf.workers.rollout.generation_worker import sampling_params


@dataclass(frozen=True, slots=True)
class StepBatch:
    """The answers of a step.

    Attributes:
        answers: Whole groups, ``data.rollout_batch_size`` of them, in the order in which they were asked. Where too few
            teach something, the others fill up; the actor masks them.
        num_prompts: Prompts that were used up for it.
        num_missing: Groups among ``answers`` that only fill up.
        num_tokens: Of all answers, those that were replaced among them.
        metrics: Of all answers, those that were replaced among them.
    """

    answers: list[Answer]
    num_prompts: int = 0
    num_missing: int = 0
    num_tokens: int = 0
    metrics: dict[str, float] = field(default_factory=dict)


class BatchFiller:
    """Asks prompts, as many ahead as ``algorithm.staleness_threshold`` allows, and makes batches of the answers.

    Steps use up prompts in the order in which they are asked, whichever is answered first: which groups are replaced,
    and by which, does not depend on time, and answers that take long are not left out more often than others. What was
    asked for a step and turns out not to be needed is taken back: a later step asks it, with later weights.

    A step that replaces groups uses up more prompts than one that does not, so those asked ahead are trained on no
    later than without: the bound on staleness holds.

    Args:
        cfg: The recipe.
        pool: Answers prompts.
        sampler: Draws them.
    """

    def __init__(self, cfg: ReasoningConfig, pool: AnswerPool, sampler: PromptSampler[Prompt]) -> None:
        algorithm, data = cfg.algorithm, cfg.data
        self._pool, self._sampler = pool, sampler
        self._size = data.rollout_batch_size
        self._asked_at_a_time = data.gen_batch_size or 1
        self._replaces = algorithm.replaces_groups
        self._limit = cfg.max_prompts_per_step
        self._ahead = algorithm.staleness_threshold or 0
        self._params = sampling_params(algorithm.sampling_params, n=algorithm.group_size)
        self._advantage = algorithm.advantage

    def fill(self, steps_left: int) -> StepBatch:
        """Wait for the answers of a step: it gets them all or, if something fails, none.

        Args:
            steps_left: Steps of the run that are still to be made, this one among them.

        Raises:
            WorkerError: An engine or a reward failed.
        """
        ahead = min(self._ahead, steps_left - 1) * self._size
        teaches: list[bool] = []
        examined = self._size
        while True:
            self._ask(examined, ahead)
            groups = self._pool.peek(examined)
            teaches += [self._teaches(group) for group in groups[len(teaches) :]]
            missing = self._size - sum(teaches)
            if not missing or examined == self._limit:
                break
            examined = min(examined + missing, self._limit)
        withdrawn = self._withdraw(examined + ahead)
        self._pool.drop(examined)
        fillers = [number for number, useful in enumerate(teaches) if not useful][:missing]
        chosen = sorted([number for number, useful in enumerate(teaches) if useful] + fillers)
        everything = [answer for group in groups for answer in group]
        metrics = answer_metrics(everything)
        if self._replaces:
            metrics |= {
                "rollout/prompts_asked": float(examined),
                "rollout/prompts_withdrawn": float(withdrawn),
                "rollout/filtered_groups": 1 - sum(teaches) / examined,
                "rollout/missing_groups": float(missing),
            }
        return StepBatch(
            [answer for number in chosen for answer in groups[number]],
            num_prompts=examined,
            num_missing=missing,
            num_tokens=sum(len(answer.token_ids) for answer in everything),
            metrics=metrics,
        )

    def _ask(self, examined: int, ahead: int) -> None:
        """Ask what is looked at now, in whole generation batches, and what is asked ahead."""
        wanted = -(-examined // self._asked_at_a_time) * self._asked_at_a_time
        while self._pool.num_held() < wanted + ahead:
            number, prompt = self._sampler.draw()
            self._pool.submit(Job(number, prompt, self._params))

    def _withdraw(self, wanted: int) -> int:
        """Take back what is held beyond ``wanted``, and return how many prompts that are."""
        surplus = self._pool.num_held() - wanted
        if surplus > 0:
            # First, so that nothing is asked twice, or not at all, if an engine dies in between.
            self._sampler.position -= surplus
            self._pool.withdraw(surplus)
        return max(surplus, 0)

    def _teaches(self, group: list[Answer]) -> bool:
        if not self._replaces:
            return True
        scores = torch.tensor([answer.reward for answer in group])
        ids = torch.zeros(len(group), dtype=torch.int64)
        return bool(informative_groups(scores, ids, self._advantage).all())
