"""What the runners of language models share: data sets, a position in them, evaluations of prompts, model folders."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from rlinf.config.schema.model import VisionLMConfig
from rlinf.config.schema.root import LanguageConfig, ReasoningConfig
from rlinf.data.datasets.prompts import PromptSampler
from rlinf.data.messages.generation import SamplingParams
from rlinf.data.messages.responses import Prompt, RewardedGroup
from rlinf.data.prompt_images import ImageProcessor
from rlinf.errors import WorkerDiedError
from rlinf.models.language.model_path import find_model_folder
from rlinf.runners.rollout_pool import RolloutPool, RolloutRequest
from rlinf.runners.step_runner import Metrics, StepRunner
from rlinf.scheduler import WorkerGroup, WorkerGroupFuncResult, wait_all
from rlinf.telemetry.responses import evaluation_metrics
from rlinf.telemetry.rundir import EVALUATIONS_FOLDER
from rlinf.utils.files import write_atomic
from rlinf.workers.actor.actor_worker import ActorWorker
from rlinf.workers.agent.episode_worker import EpisodeWorker
from rlinf.workers.inference.logprob_worker import LogprobWorker
from rlinf.workers.reward.reward_worker import RewardWorker
from rlinf.workers.rollout.generation_worker import GenerationWorker

if TYPE_CHECKING:
    from rlinf.runners.launch import GroupLauncher


class RowSet(Protocol):
    """What was read of the rows of data sets."""

    def describe(self) -> str:
        """Return what was read and left out, in words."""


T = TypeVar("T")
RowSetT = TypeVar("RowSetT", bound=RowSet)

GIB = 1 << 30
HF_FOLDER = "hf"
"""Folder within a checkpoint that holds the model as transformers loads it."""


class LanguageRunner(StepRunner, Generic[T]):
    """Drives an actor, and rollout, reward and inference groups where there are any, through a recipe.

    The reward group stays as it is when an engine dies: it keeps the responses that others have generated.

    Args:
        cfg: The recipe.
        groups: ``actor``; ``rollout``, ``reward`` and ``inference`` where the recipe has these sections.
        sampler: Samples what is trained on.
        position_file: Where checkpoints hold its position, within their folder ``data``.
        train: What it trains on; None where the run only evaluates.
        val: What it evaluates on, by name.
    """

    def __init__(
        self,
        cfg: LanguageConfig,
        groups: Mapping[str, WorkerGroup[Any]],
        *,
        sampler: PromptSampler[T],
        position_file: str,
        train: RowSet | None,
        val: Mapping[str, RowSet],
    ) -> None:
        super().__init__(cfg, groups)
        self.logger.notes += [] if train is None else [f"training: {train.describe()}"]
        self.logger.notes += [f"evaluation on {name}: {rows.describe()}" for name, rows in val.items()]
        self.recipe, self.sampler, self.position_file = cfg, sampler, position_file
        self.pool: RolloutPool | None = None
        if cfg.rollout is not None:
            # Engines queue what they cannot generate yet; twice their capacity keeps them busy between two responses.
            max_per_rank = max(2 * cfg.rollout.max_running_requests // cfg.algorithm.group_size, 1)
            generating = self.groups["rollout"]
            if isinstance(cfg, ReasoningConfig) and cfg.plays_episodes:
                # Episodes are played by a group that hands their requests to the engines.
                num_engines, generating = generating.world_size, self.groups.get("agent", self.groups["reward"])
                max_per_rank = -(-max_per_rank * num_engines // generating.world_size)
            section = cfg.inference if isinstance(cfg, ReasoningConfig) else None
            self.pool = RolloutPool(
                generating,
                self.groups["reward"],
                max_per_rank=max_per_rank,
                inference=self.groups.get("inference"),
                inference_is_sharded=section is not None and section.shard_model,
            )

    survivors = frozenset({"actor", "reward"})

    def num_unconsumed(self) -> int:
        """Return the number of samples taken from the sampler that no finished step has trained on."""
        return 0

    def carried(self) -> list[int]:
        """Return the numbers of those samples among them that a later one was trained on before."""
        return []

    def reset_batch(self) -> None:
        """Forget the step's samples: the sampler has been moved."""

    def sync_weights(self) -> None:
        """Bring engines and inference ranks to the actor's weights; responses in progress continue with them."""
        assert self.recipe.rollout is not None
        self.logger.phase("sync weights")
        if self.recipe.rollout.enable_offload:
            self.groups["rollout"].wake().wait()
        receivers = [
            self.groups[name].sync_model_from_actor(version=self.step)
            for name in ("rollout", "inference")
            if name in self.groups
        ]
        actor = self.publish_weights()
        # An engine that has been launched again has no weights yet: what is submitted again waits for them.
        assert self.pool is not None
        self.pool.wait(actor, *receivers, submits=False)
        # An engine that sleeps may lose weights; next to adapters its worker keeps all of them.
        self.receivers_synced = self.recipe.actor.model.is_lora

    def evaluate_prompts(self, named: Mapping[str, Sequence[Prompt]]) -> Metrics:
        """Generate responses to an evaluation's prompts, always the same.

        Args:
            named: The prompts, by the name of the data set.

        Returns:
            The shares of correct responses, under ``eval/``.
        """
        assert self.pool is not None
        num_samples = self.recipe.runner.val_samples
        params = SamplingParams.of(self.recipe.algorithm.sampling_params, n=num_samples, greedy=num_samples == 1)
        self.pool.clear("eval")
        prompts = [prompt for part in named.values() for prompt in part]
        for number, prompt in enumerate(prompts):
            self.pool.submit(RolloutRequest(number, prompt, params, split="eval"))
        groups = self.pool.peek(len(prompts), "eval")
        path = self.logger.folder / EVALUATIONS_FOLDER / f"step_{self.step:08d}.jsonl"
        self.pool.wait(self.write_samples(path, "eval", range(len(prompts))))
        self.pool.discard(len(prompts), "eval")
        self.logger.num_evaluations += 1
        return self._evaluation_metrics(groups, {name: len(part) for name, part in named.items()})

    def write_samples(self, path: Path, split: str, group_ids: Sequence[int]) -> WorkerGroupFuncResult:
        """Have a reward rank write a table of responses, whose texts never come here.

        Args:
            path: The file, on the reward rank's machine.
            split: ``train`` or ``eval``.
            group_ids: The groups, in the table's order.
        """
        return self.groups["reward"].execute_on(0).write_samples(str(path), split, list(group_ids))

    def _evaluation_metrics(self, groups: Sequence[RewardedGroup], sizes: Mapping[str, int]) -> Metrics:
        """Return shares over all prompts and, if there are several sets of them, over each."""
        runner = self.recipe.runner
        parts, begin = {"eval": groups}, 0
        for name, size in sizes.items() if len(sizes) > 1 else ():
            parts[f"eval/{name}"] = groups[begin : begin + size]
            begin += size
        metrics: Metrics = {}
        for prefix, part in parts.items():
            metrics |= evaluation_metrics(
                part, correct_reward=runner.val_correct_reward, pass_at=runner.val_pass_at, prefix=prefix
            )
        return metrics

    def measure_times(self) -> Metrics:
        """See ``StepRunner``; also the memory of the rank that took most."""
        metrics = super().measure_times()
        names = [name for name in ("actor", "rollout", "inference") if name in self.groups]
        ranks = wait_all(*(self.groups[name].pop_peak_memory() for name in names))
        return metrics | {
            f"time/{name}/peak_memory_gib": max(held) / GIB for name, held in zip(names, ranks, strict=True)
        }

    def write_checkpoint(self, folder: str) -> None:
        """See ``StepRunner``; what has been sampled and not been trained on is sampled again after a resume."""
        super().write_checkpoint(folder)
        if self.recipe.runner.save_hf:
            self.groups["actor"].save_hf(str(Path(folder) / HF_FOLDER)).wait()
        path = Path(folder) / "data" / self.position_file
        path.parent.mkdir(parents=True, exist_ok=True)
        again = self.carried()
        position = self.sampler.position - self.num_unconsumed() + len(again)
        write_atomic(path, json.dumps({"position": position, "again": again} if again else {"position": position}))

    def load_checkpoint(self, folder: str) -> None:
        """See ``StepRunner``."""
        super().load_checkpoint(folder)
        saved = json.loads((Path(folder) / "data" / self.position_file).read_text())
        self._go_to(saved["position"], saved.get("again", ()))

    def start_over(self) -> None:
        """See ``StepRunner``."""
        self._go_to(0)

    def recover(self, death: WorkerDiedError) -> bool:
        """See ``StepRunner``; unfinished requests are submitted again, and those whose responses are lost."""
        if self.pool is not None:
            has_lost_responses = death.group == self.groups["reward"].name
            self.pool.requeue(finished=has_lost_responses)
            if has_lost_responses:
                self.reset_batch()
        return super().recover(death)

    def _go_to(self, position: int, again: Iterable[int] = ()) -> None:
        """Sample from a position on, some earlier prompts before, and forget what has been sampled."""
        self.sampler.position, self.sampler.again = position, deque(again)
        self.reset_batch()
        if self.pool is not None:
            self.pool.clear()


def read_sets(cfg: LanguageConfig, read: Callable[..., RowSetT]) -> tuple[RowSetT | None, Mapping[str, RowSetT]]:
    """Read what a recipe trains and evaluates on.

    Args:
        cfg: The validated recipe.
        read: Called as ``read(paths, split=..., limit=..., is_evaluation=...)``.

    Returns:
        What it trains on, None where it only evaluates; and what it evaluates on, by name.

    Raises:
        DatasetError: From ``read``.
    """
    data, train = cfg.data, None
    if not cfg.runner.only_eval:
        train = read(data.train_data_paths, split=data.train_split, limit=None, is_evaluation=False)
    val = {
        name: read([path], split=data.val_split, limit=data.max_val_prompts, is_evaluation=True)
        for name, path in zip(data.val_names, data.val_data_paths, strict=True)
    }
    return train, val


def image_processor(cfg: LanguageConfig) -> ImageProcessor | None:
    """Return what expands placeholders of images for a recipe's model, or None where it reads none.

    Args:
        cfg: The recipe.

    Raises:
        DatasetError: The model's folder has no image processor.
    """
    model = cfg.actor.model
    return ImageProcessor(str(find_model_folder(model.model_path))) if isinstance(model, VisionLMConfig) else None


def start_workers(cfg: LanguageConfig, launcher: GroupLauncher) -> LanguageConfig:
    """Start the worker groups that a recipe of a language model has sections for; see ``TaskType.workers``.

    Args:
        cfg: The recipe.
        launcher: Starts them.
    """
    names, sizes = launcher.names, launcher.sizes
    receivers = {names[part]: sizes[part] for part in ("rollout", "inference") if part in names}
    launcher.start("actor", ActorWorker.create_group(cfg, receivers))
    if "rollout" in names:
        launcher.start("rollout", GenerationWorker.create_group(cfg))
    if "inference" in names:
        launcher.start("inference", LogprobWorker.create_group(cfg))
    if "reward" in names:
        plays = isinstance(cfg, ReasoningConfig) and cfg.plays_episodes and not cfg.places_agent
        launcher.start("reward", (EpisodeWorker if plays else RewardWorker).create_group(cfg))
    if "agent" in names:
        launcher.start("agent", EpisodeWorker.create_group(cfg))
    return cfg
