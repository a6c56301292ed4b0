"""The loop of language models: ask prompts, reward the answers, train, hand the new weights to the engines."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlinf.config.schema.generation import ServingConfig
from rlinf.config.schema.root import ReasoningConfig
from rlinf.data.answers import Answer
from rlinf.data.prompts import PromptSampler, PromptSet
from rlinf.errors import WorkerError
from rlinf.runners.answer_pool import AnswerPool, Job
from rlinf.runners.step_batches import BatchFiller, StepBatch
from rlinf.runners.step_runner import Metrics, StepRunner
from rlinf.scheduler import WorkerGroup, wait_all
from rlinf.telemetry.answers import evaluation_metrics, write_answers
from rlinf.telemetry.rundir import EVALUATIONS_FOLDER, SAMPLES_FOLDER
from rlinf.utils.files import write_atomic
from rlinf.workers.rollout.generation_worker import sampling_params

if TYPE_CHECKING:
    from rlinf.scheduler import WorkerGroupFuncResult
    from rlinf.workers.actor.text_actor import TextActor
    from rlinf.workers.reward.text_reward_worker import TextRewardWorker
    from rlinf.workers.rollout.generation_worker import GenerationWorker

_POSITION_FILE = "prompts.json"
GIB = 1 << 30
HF_FOLDER = "hf"
"""Folder within a checkpoint that holds the model as transformers loads it."""


class ReasoningRunner(StepRunner):
    """Drives actor, rollout and reward groups through a recipe.

    With ``algorithm.staleness_threshold`` above 0, prompts are asked ahead of the step that trains on them: so many
    that no answer is trained on that was begun more versions ago. Steps consume prompts in the order in which they were
    asked, so nothing is dropped, and slow training slows the engines down.

    Args:
        cfg: The recipe.
        actor: Trains the model.
        rollout: Generates.
        reward: Rewards.
        train_prompts: What is asked.
        val_prompts: What is asked in evaluations, by name.
    """

    def __init__(
        self,
        cfg: ReasoningConfig,
        *,
        actor: WorkerGroup[TextActor],
        rollout: WorkerGroup[GenerationWorker],
        reward: WorkerGroup[TextRewardWorker],
        train_prompts: PromptSet,
        val_prompts: Mapping[str, PromptSet],
    ) -> None:
        super().__init__(cfg, {"actor": actor, "rollout": rollout, "reward": reward})
        self.cfg = cfg
        self.actor, self.rollout, self.reward = actor, rollout, reward
        self.val_prompts = val_prompts
        self.sampler = PromptSampler(train_prompts.prompts, shuffle=cfg.data.shuffle, seed=cfg.data.seed)
        # Engines queue what they cannot generate yet; twice their capacity keeps them busy between two answers.
        max_per_rank = max(2 * cfg.rollout.max_running_requests // cfg.algorithm.group_size, 1)
        self.pool = AnswerPool(rollout, reward, max_per_rank=max_per_rank)
        self.filler = BatchFiller(cfg, self.pool, self.sampler)
        self.session.places["samples"] = self.session.folder / SAMPLES_FOLDER
        self.batch = StepBatch([])
        self.batch_step: int | None = None

    def make_step(self) -> Metrics:
        """Make one step, all but handing its weights on."""
        self.started = time.monotonic()
        with self.profiler.step(self.step + 1):
            answers, metrics = self.collect_answers()
            metrics |= self.prepare(answers)
            metrics |= self.run_training()
        return metrics

    def collect_answers(self) -> tuple[list[Answer], Metrics]:
        """Ask prompts, and wait for the answers of this step; one that is made again has its answers already."""
        self.session.phase("rollout")
        if self.batch_step != self.step:
            self.batch = self.filler.fill(self.limits.total_steps - self.step)
            self.batch_step = self.step
            self._report_batch()
        return self.batch.answers, self.batch.metrics

    def prepare(self, answers: Sequence[Answer]) -> Metrics:
        """Hand the answers to the actor, and let it compare them."""
        self.session.phase("advantages")
        if self.cfg.rollout.enable_offload:
            self.rollout.sleep().wait()
        result = self.actor.prepare(answers, version=self.step)
        self.wait_for_training(result)
        return dict(result.wait()[0])

    def wait_for_training(self, training: WorkerGroupFuncResult) -> None:
        """See ``StepRunner``: engines answer meanwhile what they have been asked ahead."""
        # What happens to an engine now is the next step's concern, which meets it again; this one has its answers.
        with contextlib.suppress(WorkerError):
            self.pool.wait(training)
        training.wait()

    def update_rollout_weights(self) -> None:
        """Bring the engines to the actor's current weights; answers that are being generated go on with them."""
        self.session.phase("sync weights")
        if self.cfg.rollout.enable_offload:
            self.rollout.wake().wait()
        rollout = self.rollout.sync_model_from_actor(version=self.step)
        # An engine that has been launched again has no weights yet: what is asked anew waits for them.
        self.pool.wait(self.actor.sync_model_to_rollout(version=self.step), rollout, asks=False)

    def evaluate(self) -> Metrics:
        """Ask the evaluation's prompts, always the same, and return the shares that were answered right."""
        self.session.phase("evaluation")
        num_samples = self.cfg.runner.val_samples
        params = sampling_params(self.cfg.algorithm.sampling_params, n=num_samples, greedy=num_samples == 1)
        self.pool.clear("eval")
        prompts = [prompt for named in self.val_prompts.values() for prompt in named.prompts]
        for number, prompt in enumerate(prompts):
            self.pool.submit(Job(number, prompt, params, purpose="eval"))
        groups = self.pool.take(len(prompts), "eval")
        answers = [answer for group in groups for answer in group]
        write_answers(self.session.folder / EVALUATIONS_FOLDER / f"step_{self.step:08d}.jsonl", answers)
        self.session.evaluated_steps += 1
        return self._evaluation_metrics(groups)

    def _evaluation_metrics(self, groups: Sequence[Sequence[Answer]]) -> Metrics:
        """Return shares over all prompts and, if there are several sets of them, over each."""
        runner = self.cfg.runner
        parts, begin = {"eval": groups}, 0
        for name, named in self.val_prompts.items() if len(self.val_prompts) > 1 else ():
            parts[f"eval/{name}"] = groups[begin : begin + len(named.prompts)]
            begin += len(named.prompts)
        metrics: Metrics = {}
        for prefix, part in parts.items():
            metrics |= evaluation_metrics(
                part, correct_reward=runner.val_correct_reward, pass_at=runner.val_pass_at, prefix=prefix
            )
        return metrics

    def throughput(self, step_seconds: float) -> Metrics:
        """See ``StepRunner``: tokens that were generated for the step, over its whole time."""
        per_second = self.batch.num_tokens / step_seconds
        return {
            "time/tokens_per_second": per_second,
            "time/rollout/tokens_per_second_per_device": per_second / self._num_rollout_devices(),
        }

    def collect_times(self) -> Metrics:
        """See ``StepRunner``; also the memory of the rank that took most."""
        metrics = super().collect_times()
        actor, rollout = wait_all(self.actor.pop_peak_memory(), self.rollout.pop_peak_memory())
        metrics["time/actor/peak_memory_gib"] = max(actor) / GIB
        metrics["time/rollout/peak_memory_gib"] = max(rollout) / GIB
        return metrics

    def _num_rollout_devices(self) -> int:
        rollout = self.cfg.rollout
        per_engine = rollout.tensor_parallel_size if isinstance(rollout, ServingConfig) else 1
        return self.rollout.world_size * per_engine

    def write_checkpoint(self, folder: str) -> None:
        """See ``StepRunner``; asks anew after a resume what has been asked ahead."""
        super().write_checkpoint(folder)
        if self.cfg.runner.save_hf:
            self.actor.save_hf(str(Path(folder) / HF_FOLDER)).wait()
        path = Path(folder) / "data" / _POSITION_FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        # The answers of a step that an interrupt has ended before it was made have not been trained on.
        untrained = self.batch.num_prompts if self.batch_step == self.step else 0
        write_atomic(path, json.dumps({"position": self.sampler.position - self.pool.num_held() - untrained}))

    def load_checkpoint(self, folder: str) -> None:
        """See ``StepRunner``."""
        super().load_checkpoint(folder)
        self._go_to(json.loads((Path(folder) / "data" / _POSITION_FILE).read_text())["position"])

    def start_over(self) -> None:
        """See ``StepRunner``."""
        self._go_to(0)

    def recover(self, error: WorkerError) -> bool:
        """See ``StepRunner``; what was being answered is asked again."""
        self.pool.requeue()
        return super().recover(error)

    def _go_to(self, position: int) -> None:
        """Ask from a position of the sampler on, and forget what has been asked."""
        self.sampler.position = position
        self.batch_step = None
        self.pool.clear()

    def _report_batch(self) -> None:
        """Write the step's samples, and say so if they are not worth a full batch."""
        path = self.session.folder / SAMPLES_FOLDER / f"step_{self.step + 1:08d}.jsonl"
        write_answers(path, self.batch.answers)
        size, missing = self.cfg.data.rollout_batch_size, self.batch.num_missing
        if missing:
            self.session.message(
                f"Step {self.step + 1}: of the answers to {self.batch.num_prompts} prompts, those to {size - missing} "
                f"teach something, {missing} fewer than data.rollout_batch_size; algorithm.max_num_gen_batches allows "
                f"no further ones. {'It trains on these.' if missing < size else 'It trains nothing.'}"
            )
