"""The phases of RL for language models: engines generate responses, rewards score them, the actor trains on them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from rlinf.config.schema.generation import ServingConfig
from rlinf.config.schema.root import ReasoningConfig
from rlinf.data.answers import Prompt
from rlinf.data.prompts import PromptSampler, PromptSet, load_tokenizer, read_prompts
from rlinf.errors import WorkerError
from rlinf.runners.answer_pool import AnswerPool
from rlinf.runners.language_runner import LanguageRunner, read_sets
from rlinf.runners.step_batches import BatchFiller, StepBatch
from rlinf.runners.step_runner import Metrics
from rlinf.scheduler import WorkerGroup, wait_all
from rlinf.telemetry.answers import write_answers
from rlinf.telemetry.rundir import SAMPLES_FOLDER

if TYPE_CHECKING:
    from rlinf.scheduler import WorkerGroupFuncResult
    from rlinf.workers.actor.actor_worker import ActorWorker
    from rlinf.workers.inference.logprob_worker import LogprobWorker
    from rlinf.workers.reward.reward_worker import RewardWorker
    from rlinf.workers.rollout.generation_worker import GenerationWorker


class ReasoningRunner(LanguageRunner[Prompt]):
    """Drives actor, rollout, reward and perhaps inference groups through a recipe.

    With ``algorithm.staleness_threshold`` above 0, prompts are asked ahead of the step that trains on them: so many
    that no answer is trained on that was begun more versions ago. Steps consume prompts in the order in which they were
    asked, so nothing is dropped, and slow training slows the engines down.

    Args:
        cfg: The recipe.
        actor: Trains the model.
        rollout: Generates.
        reward: Rewards.
        inference: Recomputes log-probabilities; None leaves them to the actor.
        train_prompts: What is asked; None where the run only evaluates.
        val_prompts: What is asked in evaluations, by name.
    """

    pool: AnswerPool

    def __init__(
        self,
        cfg: ReasoningConfig,
        *,
        actor: WorkerGroup[ActorWorker],
        rollout: WorkerGroup[GenerationWorker],
        reward: WorkerGroup[RewardWorker],
        inference: WorkerGroup[LogprobWorker] | None = None,
        train_prompts: PromptSet | None,
        val_prompts: Mapping[str, PromptSet],
    ) -> None:
        prompts = () if train_prompts is None else train_prompts.prompts
        sampler = PromptSampler(prompts, shuffle=cfg.data.shuffle, seed=cfg.data.seed)
        groups: dict[str, WorkerGroup[Any]] = {"actor": actor, "rollout": rollout, "reward": reward}
        if inference is not None:
            groups["inference"] = inference
        super().__init__(
            cfg, groups, sampler=sampler, position_file="prompts.json", train=train_prompts, val=val_prompts
        )
        self.cfg = cfg
        self.actor, self.rollout, self.reward = actor, rollout, reward
        self.val_prompts = val_prompts
        self.filler = BatchFiller(cfg, self.pool, self.sampler)
        self.logger.output_paths["samples"] = self.logger.folder / SAMPLES_FOLDER
        self.batch = StepBatch([])
        self.batch_step: int | None = None

    def generate_rollouts(self) -> Metrics:
        """Submit prompts and wait for the responses of this step; a step that is made again has them already."""
        self.logger.phase("rollout")
        if self.batch_step != self.step:
            self.batch = self.filler.fill(self.limits.total_steps - self.step)
            self.batch_step = self.step
            self._report_batch()
        return dict(self.batch.metrics)

    def compute_advantages(self) -> Metrics:
        """Send the responses to the actor, which computes their advantages."""
        self.logger.phase("advantages")
        sections = {"rollout": self.cfg.rollout, "inference": self.cfg.inference}
        offloaded = [name for name, section in sections.items() if section is not None and section.enable_offload]
        wait_all(*(self.groups[name].sleep() for name in offloaded))
        result = self.actor.compute_advantages(self.batch.answers)
        self.wait_for_training(result)
        return dict(result.wait()[0])

    def wait_for_training(self, training: WorkerGroupFuncResult) -> None:
        """See ``StepRunner``: engines answer meanwhile what they have been asked ahead."""
        # What happens to an engine now is the next step's concern, which meets it again; this one has its answers.
        with contextlib.suppress(WorkerError):
            self.pool.wait(training)
        training.wait()

    def evaluate(self) -> Metrics:
        """Ask the evaluation's prompts, and return the shares that were answered right."""
        self.logger.phase("evaluation")
        return self.ask({name: prompts.prompts for name, prompts in self.val_prompts.items()})

    def throughput(self, step_seconds: float) -> Metrics:
        """See ``StepRunner``: tokens that were generated for the step, over its whole time."""
        per_second = self.batch.num_tokens / step_seconds
        return {
            "time/tokens_per_second": per_second,
            "time/rollout/tokens_per_second_per_device": per_second / self._num_rollout_devices(),
        }

    def _num_rollout_devices(self) -> int:
        rollout = self.cfg.rollout
        per_engine = rollout.tensor_parallel_size if isinstance(rollout, ServingConfig) else 1
        return self.rollout.world_size * per_engine

    def num_undone(self) -> int:
        """See ``LanguageRunner``: what has been asked ahead, too."""
        # The answers of a step that an interrupt has ended before it was made have not been trained on.
        untrained = self.batch.num_prompts if self.batch_step == self.step else 0
        return self.pool.num_held() + untrained

    def forget_drawn(self) -> None:
        """See ``LanguageRunner``."""
        self.batch_step = None

    def _report_batch(self) -> None:
        """Write the step's samples, and say so if they are not worth a full batch."""
        path = self.logger.folder / SAMPLES_FOLDER / f"step_{self.step + 1:08d}.jsonl"
        write_answers(path, self.batch.answers)
        size, missing = self.cfg.data.rollout_batch_size, self.batch.num_missing
        if missing:
            self.logger.message(
                f"Step {self.step + 1}: of the answers to {self.batch.num_prompts} prompts, those to {size - missing} "
                f"teach something, {missing} fewer than data.rollout_batch_size; algorithm.max_num_gen_batches allows "
                f"no further ones. {'It trains on these.' if missing < size else 'It trains nothing.'}"
            )


def read_prompt_sets(cfg: ReasoningConfig, _: ExitStack) -> tuple[ReasoningConfig, dict[str, Any]]:
    """Read the prompts of a reasoning recipe; see ``TaskType.data``.

    Args:
        cfg: The validated recipe.

    Returns:
        The recipe, and arguments of ``ReasoningRunner``.

    Raises:
        DatasetError: A data set or the model's tokenizer cannot be read, or no prompt is left.
    """
    tokenizer = load_tokenizer(cfg.actor.model.model_path)
    train, val = read_sets(cfg, partial(read_prompts, cfg=cfg.data, tokenizer=tokenizer))
    return cfg, {"train_prompts": train, "val_prompts": val}
