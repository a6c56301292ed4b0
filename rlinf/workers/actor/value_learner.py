"""Learning to judge recorded frames, and labelling data sets with what that says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from rlinf.algorithms.frame_values.frame_objective import FrameObjective, Scale
from rlinf.algorithms.types import add_metrics
from rlinf.config.registries import losses
from rlinf.config.schema.root import RLinfConfig, ValueConfig
from rlinf.data.datasets.lerobot.labels import write_advantages
from rlinf.data.episode_table import EpisodeTable, FloatArray, IntArray
from rlinf.data.value_frames import ValueFrames
from rlinf.errors import AlgorithmError
from rlinf.hybrid_engines.train.train_engine import MetricSums, Pass, TrainEngine
from rlinf.models.frame_model import FrameModel
from rlinf.models.trainable import TrainableModel
from rlinf.utils.seeding import derive_seed
from rlinf.workers.actor.learner import Learner, MakeEngine, metrics_over_ranks

if TYPE_CHECKING:
    from typing_extensions import Self

Rows = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Samples:
    """What is to be judged.

    Attributes:
        chosen: int64 [n]; numbers of episodes.
        frames: int64 [n, F]; places in them.
        targets: [n].
        draws: [n]; random numbers by which frames get other sentences; None leaves them their own.
    """

    chosen: IntArray
    frames: IntArray
    targets: FloatArray
    draws: FloatArray | None = None


class ValueLearner(Learner[None]):
    """Teaches a model what its loss wants it to say about frames; see ``Learner``.

    A batch is a function of its number, the same for any number of ranks.

    Args:
        engine: Holds the model.
        cfg: The recipe.
        objective: What is learned.
        frames: What it is learned from.
    """

    cfg: ValueConfig

    def __init__(
        self, engine: TrainEngine, *, cfg: RLinfConfig, objective: FrameObjective, frames: ValueFrames
    ) -> None:
        super().__init__(engine, cfg=cfg)
        self.objective, self.frames = objective, frames
        data = self.cfg.data
        self.weights = np.array([source.weight for source in data.sources])
        episodes = frames.episodes
        self.learned = episodes.select(episodes.succeeded) if data.only_success else episodes
        self.val = (
            ValueFrames(data.val, image_keys=self.cfg.actor.model.image_keys, max_episodes=data.max_episodes)
            if data.val
            else None
        )

    @classmethod
    def build(cls, model: TrainableModel, make_engine: MakeEngine, *, cfg: RLinfConfig) -> Self:
        """See ``Learner``: also opens the data sets."""
        assert isinstance(cfg, ValueConfig)
        data, keys = cfg.data, cfg.actor.model
        objective: FrameObjective = losses.get(cfg.algorithm.loss_type)(cfg.algorithm.loss, num_bins=keys.output_size)
        frames = ValueFrames(
            data.sources, image_keys=keys.image_keys, max_episodes=data.max_episodes, augmentation=data.augmentation
        )
        learner = cls(make_engine(model), cfg=cfg, objective=objective, frames=frames)
        if cfg.runner.ckpt_path is None:
            learner.scale = objective.fit(learner.learned)
        return learner

    @property
    def model(self) -> FrameModel:
        """The model, maybe sharded."""
        assert isinstance(self.engine.model, FrameModel)
        return self.engine.model

    @property
    def scale(self) -> Scale:
        """What targets are brought to the model's units by; part of its weights."""
        low, high = self.model.target_scale.tolist()
        return low, high

    @scale.setter
    def scale(self, scale: Scale) -> None:
        self.model.target_scale.copy_(torch.tensor(scale))

    def compute_advantages(self, batch: None) -> dict[str, float]:
        """See ``Learner``: takes no rollouts."""
        raise AlgorithmError(f"{type(self).__name__} learns from recorded data. Set runner.task_type=value.")

    def update(self, step: int) -> dict[str, float]:
        """See ``Learner``."""
        sums: MetricSums = {}
        num_updates = self.cfg.algorithm.update_epoch
        for number in range((step - 1) * num_updates, step * num_updates):
            add_metrics(sums, self.update_once(number))
        return metrics_over_ranks(self.engine, sums) | {"frames": float(self.learned.num_frames)}

    def update_once(self, number: int) -> MetricSums:
        """Make the update of this number, from 0; return this rank's metric sums."""
        size = self.actor.global_batch_size
        generator = np.random.default_rng(derive_seed(self.actor.seed, "value", number))
        chosen, places = self.objective.sample(self.learned, size, self.weights, generator)
        frames, targets = self.objective.targets(self.learned, chosen, places, self.scale, generator)
        samples = Samples(chosen, frames, targets, generator.random(size))
        share = size // self.engine.world_size
        first = self.engine.rank * share
        seed = derive_seed(self.actor.seed, "value", "augmentation", number)
        batches = [
            self._rows(self.frames, self.learned, samples, rows, seed=seed) for rows in self._cut(first, first + share)
        ]

        def loss_fn(model: nn.Module, rows: Rows) -> tuple[torch.Tensor, MetricSums]:
            targets = rows.pop("targets")
            logits = model(rows)
            found = self.objective.losses(logits, targets)
            # The engine averages over ranks what is a share of a mean over all of them; models learn by themselves.
            metrics = self.objective.metrics(logits, targets, found)
            return found.sum() / size * self.engine.world_size, metrics

        sums = self.engine.forward_backward(batches, Pass.whole(loss_fn))
        report = self.engine.step("policy")
        return sums | {f"policy_{name}": torch.tensor([value, 1.0]) for name, value in report.items()}

    def evaluate(self, batch: None) -> dict[str, float]:
        """Return how the model does on the frames of ``data.val``.

        Args:
            batch: Not used.

        Returns:
            ``loss``; ``error``, the mean distance between prediction and target; and their agreement, by the kind of
            the loss: ``rank_correlation`` (Spearman's), or ``accuracy``, ``precision`` and ``recall``. Where frames get
            sentences of other tasks, ``wrong_sentences_refused``: the share of solved ones found not solved then.
        """
        del batch
        assert self.val is not None  # a rule has said so
        episodes = self.val.episodes
        chosen, places = episodes.all_frames()
        enough = places + self.objective.num_frames <= episodes.length[chosen]
        chosen, places = chosen[enough], places[enough]
        kept = np.linspace(0, len(chosen) - 1, min(self.cfg.data.max_val_frames, len(chosen))).round().astype(np.int64)
        generator = np.random.default_rng(derive_seed(self.actor.seed, "value", "evaluation"))
        frames, targets = self.objective.targets(episodes, chosen[kept], places[kept], self.scale, generator)
        samples = Samples(chosen[kept], frames, targets)
        found = self._judge(self.val, samples)
        loss, predicted = found[:, :, 0].mean(1), found[:, :, 1].mean(1)
        wanted = self.objective.target_values(torch.from_numpy(targets).float()).double().numpy()
        return {
            "loss": float(loss.mean()),
            "error": float(np.abs(predicted - wanted).mean()),
            **self.objective.agreement(predicted, wanted),
            **(self._refused(self.val, samples, generator) if self.objective.changed_share else {}),
        }

    def publish(self, folder: Path) -> None:
        """See ``Learner``."""
        weights = dict(self.engine.export_weights())
        if self.engine.is_main:
            self.model.publish(folder, weights)

    def label(self, tag: str) -> dict[str, float]:
        """Write the advantage of every frame of the data sets into ``meta/advantages_<tag>.parquet``.

        Args:
            tag: Names the labels.

        Returns:
            The number of frames, and the share of those that are positive.
        """
        episodes = self.frames.episodes
        chosen, places = episodes.all_frames()
        frames = self.objective.frames_to_judge(episodes, chosen, places)
        values = self._judge(self.frames, Samples(chosen, frames, np.zeros(len(chosen))))[:, :, 1]
        advantages, positive = self.objective.advantages(episodes, values, self.scale)
        if self.engine.is_main:
            for number, dataset in enumerate(self.frames.datasets):
                rows = episodes.source[chosen] == number
                first = np.flatnonzero(episodes.source == number)[0]
                write_advantages(
                    dataset.root, tag, chosen[rows] - first, places[rows], positive[rows], advantages[rows]
                )
        self.engine.all_reduce(torch.zeros(1, device=self.engine.device))  # until the files are there
        return {"frames": float(len(positive)), "positive": float(positive.mean())}

    def _judge(self, frames: ValueFrames, samples: Samples) -> FloatArray:
        """Return losses and predictions, float64 [n, M, 2], the same on every rank; each judges a part."""
        ranks, count = self.engine.world_size, len(samples.chosen)
        share = -(-count // ranks)
        found = [
            self.engine.forward(
                [self._rows(frames, frames.episodes, samples, rows)], Pass.whole(self._losses_and_values)
            )[0]
            for rows in self._cut(self.engine.rank * share, (self.engine.rank + 1) * share)
        ]
        gathered = torch.cat(self.engine.all_gather(torch.cat(found)))[:count]
        return gathered.double().cpu().numpy()

    def _refused(self, frames: ValueFrames, samples: Samples, generator: np.random.Generator) -> dict[str, float]:
        """Return the share of the solved frames that are found not solved by another sentence."""
        solved = samples.targets > 0.5
        draws = generator.random(int(solved.sum())) * self.objective.changed_share
        changed = Samples(samples.chosen[solved], samples.frames[solved], samples.targets[solved], draws)
        found = self._judge(frames, changed)[:, :, 1].mean(1) if len(draws) else np.ones(1)
        return {"wrong_sentences_refused": float((found <= 0.5).mean())}

    def _losses_and_values(self, model: nn.Module, rows: Rows) -> torch.Tensor:
        targets = rows.pop("targets")
        logits = model(rows)
        return torch.stack([self.objective.losses(logits, targets), self.objective.predict(logits)], -1)

    def _cut(self, first: int, end: int) -> Iterator[slice]:
        size = self.actor.micro_batch_size
        return (slice(start, min(start + size, end)) for start in range(first, end, size))

    def _rows(
        self, frames: ValueFrames, episodes: EpisodeTable, samples: Samples, rows: slice, *, seed: int | None = None
    ) -> Rows:
        """Return what the model takes of some samples, on the engine's device; behind the last one, that one again."""
        numbers = np.arange(rows.start, rows.stop).clip(max=len(samples.chosen) - 1)
        seen = frames.read(episodes, samples.chosen[numbers], samples.frames[numbers], seed=seed, first=rows.start)
        tasks, targets = seen.tasks, samples.targets[numbers]
        if samples.draws is not None:
            tasks, targets = self.objective.change_sentences(tasks, targets, self.frames.tasks, samples.draws[numbers])
        record = self.model.record(seen.images, tasks)
        record["targets"] = torch.from_numpy(targets).float()
        return {name: tensor.to(self.engine.device) for name, tensor in record.items()}
