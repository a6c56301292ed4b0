"""The phases of RL for language models: engines generate responses, rewards score them, the actor trains on them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from rlinf.config.schema.agent import SessionsConfig
from rlinf.config.schema.root import ReasoningConfig
from rlinf.data.datasets.prompts import PromptSampler, PromptSet, load_tokenizer, read_prompts
from rlinf.data.messages.responses import Prompt
from rlinf.errors import WorkerDiedError, WorkerError
from rlinf.runners.language_runner import LanguageRunner, image_processor, read_sets
from rlinf.runners.rollout_pool import RolloutPool
from rlinf.runners.step_batches import BatchFiller, StepBatch
from rlinf.runners.step_runner import Metrics
from rlinf.scheduler import WorkerGroup, wait_all
from rlinf.telemetry.rundir import SAMPLES_FOLDER
from rlinf.utils.signals import hold_interrupts

if TYPE_CHECKING:
    from rlinf.scheduler import WorkerGroupFuncResult
    from rlinf.workers.actor.actor_worker import ActorWorker
    from rlinf.workers.agent.episode_worker import EpisodeWorker
    from rlinf.workers.inference.logprob_worker import LogprobWorker
    from rlinf.workers.reward.reward_worker import RewardWorker
    from rlinf.workers.rollout.generation_worker import GenerationWorker


class ReasoningRunner(LanguageRunner[Prompt]):
    """Drives actor, rollout, reward and perhaps inference groups through a recipe.

    With ``algorithm.staleness_threshold`` above 0, prompts are submitted ahead of the step that trains on them, as long
    as no response is then trained on that was begun more versions ago. Steps consume prompts in the order of
    submission, so nothing is dropped, and slow training slows the engines down.

    Args:
        cfg: The recipe.
        actor: Trains the model.
        rollout: Generates.
        reward: Rewards.
        inference: Recomputes log-probabilities; None leaves them to the actor.
        agent: Plays the episodes of a recipe with a section ``agent``; None leaves them to ``reward``.
        train_prompts: Prompts to train on; None where the run only evaluates.
        val_prompts: Prompts of evaluations, by name.
    """

    pool: RolloutPool

    def __init__(
        self,
        cfg: ReasoningConfig,
        *,
        actor: WorkerGroup[ActorWorker],
        rollout: WorkerGroup[GenerationWorker],
        reward: WorkerGroup[RewardWorker],
        inference: WorkerGroup[LogprobWorker] | None = None,
        agent: WorkerGroup[EpisodeWorker] | None = None,
        train_prompts: PromptSet | None,
        val_prompts: Mapping[str, PromptSet],
    ) -> None:
        prompts = () if train_prompts is None else train_prompts.prompts
        sampler = PromptSampler(prompts, shuffle=cfg.data.shuffle, seed=cfg.data.seed)
        groups: dict[str, WorkerGroup[Any]] = {"actor": actor, "rollout": rollout, "reward": reward}
        if inference is not None:
            groups["inference"] = inference
        if agent is not None:
            groups["agent"] = agent
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
        self._discard_trained()
        if self.batch_step != self.step:
            self.batch = self.filler.fill(self.limits.total_steps - self.step)
            self.batch_step = self.step
            self._report_batch()
        return dict(self.batch.metrics)

    def compute_advantages(self) -> Metrics:
        """Have the actor fetch the responses from the reward group, and compute their advantages."""
        self.logger.phase("advantages")
        sections = {"rollout": self.cfg.rollout, "inference": self.cfg.inference}
        offloaded = [name for name, section in sections.items() if section is not None and section.enable_offload]
        wait_all(*(self.groups[name].sleep() for name in offloaded))
        group_ids = self.batch.group_ids
        path = self.logger.folder / SAMPLES_FOLDER / f"step_{self.step + 1:08d}.jsonl"
        written = self.write_samples(path, "train", group_ids)
        self.wait_for_training(self.actor.recv_responses(sorted(group_ids)))
        result = self.actor.compute_advantages(dump=self.dump_folder())
        self.wait_for_training(result)
        written.wait()
        return dict(result.wait()[0])

    def wait_for_training(self, training: WorkerGroupFuncResult) -> None:
        """See ``StepRunner``: engines meanwhile generate what has been submitted ahead."""
        # What happens to an engine now is the next step's concern, which meets it again; this one has its responses.
        with contextlib.suppress(WorkerError):
            self.pool.wait(training)
        training.wait()

    def evaluate(self) -> Metrics:
        """Generate responses to the evaluation's prompts; returns the shares of correct ones."""
        self.logger.phase("evaluation")
        return self.evaluate_prompts({name: prompts.prompts for name, prompts in self.val_prompts.items()})

    def throughput(self, step_seconds: float) -> Metrics:
        """See ``StepRunner``: tokens that were generated for the step, over its whole time."""
        per_second = self.batch.num_tokens / step_seconds
        return {
            "time/tokens_per_second": per_second,
            "time/rollout/tokens_per_second_per_device": per_second / self._num_rollout_devices(),
        }

    def _num_rollout_devices(self) -> int:
        return self.rollout.world_size * self.cfg.rollout.num_devices

    def finish(self) -> None:
        """See ``StepRunner``: clients of the run are answered."""
        if self.cfg.plays_episodes:
            self.groups.get("agent", self.groups["reward"]).end_service().wait()

    def num_unconsumed(self) -> int:
        """See ``LanguageRunner``: what has been submitted ahead, too."""
        return self.pool.num_unconsumed()

    def carried(self) -> list[int]:
        """See ``LanguageRunner``: with ``algorithm.carry_over``."""
        numbers, position = sorted(self.pool.unconsumed()), self.sampler.position
        while numbers and numbers[-1] == position - 1:
            position = numbers.pop()
        return numbers

    def reset_batch(self) -> None:
        """See ``LanguageRunner``."""
        self.batch_step = None

    def write_checkpoint(self, folder: str) -> None:
        """See ``LanguageRunner``."""
        self._discard_trained()
        super().write_checkpoint(folder)

    def recover(self, death: WorkerDiedError) -> bool:
        """See ``LanguageRunner``."""
        self._discard_trained()
        return super().recover(death)

    def _discard_trained(self) -> None:
        """Remove the requests of the batch from the pool, if it has been trained on."""
        with hold_interrupts():
            if self.batch_step is not None and self.batch_step != self.step:
                self.pool.discard(self.batch.num_prompts)
                self.batch_step = None

    def _report_batch(self) -> None:
        """Report a batch with too few informative groups."""
        size, missing = self.cfg.data.rollout_batch_size, self.batch.num_missing
        if missing:
            self.logger.message(
                f"Step {self.step + 1}: {size - missing} of {self.batch.num_prompts} prompt groups have non-zero "
                f"advantages, {missing} fewer than data.rollout_batch_size; algorithm.max_num_gen_batches allows no "
                f"further ones. {'It trains on these.' if missing < size else 'The update is skipped.'}"
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
    if isinstance(cfg.agent, SessionsConfig):
        return cfg, {"train_prompts": PromptSet.of_clients(), "val_prompts": {}}
    tokenizer = load_tokenizer(cfg.actor.model.model_path)
    read = partial(
        read_prompts,
        cfg=cfg.data,
        tokenizer=tokenizer,
        with_messages=cfg.plays_episodes,
        processor=image_processor(cfg),
    )
    train, val = read_sets(cfg, read)
    return cfg, {"train_prompts": train, "val_prompts": val}
