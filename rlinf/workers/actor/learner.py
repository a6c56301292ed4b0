"""The contract between the actor and what its model learns with."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch

from rlinf.algorithms.types import LARGEST, finalize_metrics
from rlinf.config.schema.algorithm import EmbodiedAlgorithmConfig
from rlinf.config.schema.root import RLinfConfig
from rlinf.data.messages.embodied import Trajectory
from rlinf.errors import AlgorithmError
from rlinf.hybrid_engines.train.train_engine import MetricSums, TrainEngine
from rlinf.models.base_policy import BasePolicy
from rlinf.models.trainable import TrainableModel
from rlinf.registry import Registry

if TYPE_CHECKING:
    from typing_extensions import Self

REFERENCE = "reference"
"""Under which an engine remembers the weights that a run starts from: the reference of the KL term."""
BatchT = TypeVar("BatchT")
MakeEngine = Callable[[TrainableModel], TrainEngine]
"""Builds the engine of a model; it may shard the model, so copies are made before."""


@dataclass(frozen=True, slots=True)
class Work:
    """What an update has processed, over all ranks.

    Attributes:
        tokens: Of prompts and responses, once for each time that they were trained on.
        flops: Operations of the model.
    """

    tokens: int = 0
    flops: float = 0.0

    def __add__(self, other: Work) -> Work:
        """Return both together."""
        return Work(self.tokens + other.tokens, self.flops + other.flops)


class Learner(abc.ABC, Generic[BatchT]):
    """Improves the model that an engine holds.

    A step calls ``compute_advantages`` with its batch, then ``update``. All ranks call every method together.

    Attributes:
        work: What the last update has processed; None where it is not counted.

    Args:
        engine: Holds the model.
        cfg: The recipe.
    """

    work: Work | None = None

    def __init__(self, engine: TrainEngine, *, cfg: RLinfConfig) -> None:
        self.engine, self.cfg, self.actor = engine, cfg, cfg.actor

    @classmethod
    def build(cls, model: TrainableModel, make_engine: MakeEngine, *, cfg: RLinfConfig) -> Self:
        """Build the engine of a model, and the learner.

        Args:
            model: With equal weights on every rank, on the host.
            make_engine: Builds the engine.
            cfg: The recipe.
        """
        return cls(make_engine(model), cfg=cfg)

    @abc.abstractmethod
    def compute_advantages(self, batch: BatchT) -> dict[str, float]:
        """Take a step's batch, and compute what its update needs.

        Args:
            batch: Of embodied RL this rank's share; of language models all samples, on every rank.

        Returns:
            Metrics over all ranks.

        Raises:
            NumericalError: A reward or value was not finite.
            AlgorithmError: The learner learns from recorded data alone.
        """

    @abc.abstractmethod
    def update(self, step: int) -> dict[str, float]:
        """Make the step's optimizer updates.

        Args:
            step: Step of the run, from 1; names the random streams.

        Returns:
            Metrics over all ranks, micro-batches and optimizer steps.

        Raises:
            NumericalError: A gradient is not finite.
        """

    def evaluate(self, batch: BatchT) -> dict[str, float]:
        """Return metrics of the model on a batch, over all ranks, without learning from it.

        Args:
            batch: As ``compute_advantages`` takes it.

        Raises:
            AlgorithmError: The model is evaluated by rollouts alone.
        """
        raise AlgorithmError(f"{type(self).__name__} measures nothing by itself: its model is evaluated by rollouts.")

    def publish(self, folder: Path) -> None:
        """Write the model into a checkpoint as others read it, where there is such a form; by default nothing.

        Args:
            folder: Of the checkpoint.
        """

    def label(self, tag: str) -> dict[str, float]:
        """Write what the model says of the data that it learns from into the data sets.

        Args:
            tag: Names the labels.

        Raises:
            AlgorithmError: The model does not judge data.
        """
        raise AlgorithmError(f"{type(self).__name__} labels nothing. Set runner.task_type=value.")

    def behaviour_versions(self, batch: BatchT) -> torch.Tensor | None:
        """Return the versions of the weights that made a batch's decisions, int64 [N]; None without staleness."""
        return None

    def save(self, path: Path, *, in_background: bool = False) -> None:
        """Write all that changes under the folder ``path``.

        Args:
            path: The folder.
            in_background: Go on writing weights and moments after the return, until ``TrainEngine.finish_save``.
        """
        self.engine.save(path, in_background=in_background)

    def load(self, path: Path) -> None:
        """Read what ``save`` wrote, under any number of ranks."""
        self.engine.load(path)

    def close(self) -> None:
        """Release what the learner holds apart from its engine."""


class EmbodiedLearner(Learner[Trajectory]):
    """Improves a policy that acts in environments; see ``Learner``."""

    def __init__(self, engine: TrainEngine, *, cfg: RLinfConfig) -> None:
        super().__init__(engine, cfg=cfg)
        assert isinstance(cfg.algorithm, EmbodiedAlgorithmConfig)
        self.algorithm = cfg.algorithm

    @property
    def policy(self) -> BasePolicy:
        """The policy, maybe sharded."""
        assert isinstance(self.engine.model, BasePolicy)
        return self.engine.model

    def behaviour_versions(self, batch: Trajectory) -> torch.Tensor | None:
        """See ``Learner``: of the chunks that were executed, where rollouts run ahead of the training."""
        if self.algorithm.staleness_threshold is None:
            return None
        return batch.versions[batch.executed.any(-1)]


def metrics_over_ranks(
    engine: TrainEngine, sums: MetricSums, steps: Sequence[dict[str, float]] = ()
) -> dict[str, float]:
    """Return the metrics of an update; called by all ranks together.

    Args:
        engine: Knows the ranks.
        sums: What this rank has summed, by name; the same names on every rank.
        steps: Reports of optimizer steps, alike on all ranks; each name's mean is returned.
    """
    metrics: dict[str, float] = {}
    if sums:
        names = sorted(sums)
        parts = torch.stack([sums[name].to(engine.device).double() for name in names])
        total = dict(zip(names, engine.all_reduce(parts).cpu(), strict=True))
        for name in LARGEST & sums.keys():
            total[name] = torch.stack(engine.all_gather(parts[names.index(name)])).amax(0).cpu()
        metrics = finalize_metrics(total)
    if steps:
        metrics |= {name: sum(step[name] for step in steps) / len(steps) for name in steps[0]}
    return metrics


def staleness(engine: TrainEngine, ages: torch.Tensor) -> dict[str, float]:
    """Return by how many versions the weights that acted are older than those about to be trained.

    Args:
        engine: Knows the ranks.
        ages: int64 [N]; differences of versions on this rank.
    """
    parts = torch.tensor([ages.sum(), ages.numel(), ages.max() if ages.numel() else 0], dtype=torch.float64)
    total, count, oldest = torch.stack(engine.all_gather(parts)).unbind(1)
    return {
        "staleness_mean": float(total.sum() / count.sum().clamp(min=1)),
        "staleness_max": float(oldest.max()),
    }


learners: Registry[type[Learner[Any]]] = Registry("learner")
"""What ``cfg.learner`` names."""
learners.register("on_policy", "rlinf.workers.actor.policy_learner:PolicyLearner")
learners.register("velocity", "rlinf.workers.actor.velocity_learner:VelocityLearner")
learners.register("off_policy", "rlinf.workers.actor.off_policy_learner:OffPolicyLearner")
learners.register("imitation", "rlinf.workers.actor.imitation_learner:ImitationLearner")
learners.register("frames", "rlinf.workers.actor.frame_learner:FrameLearner")
learners.register("dagger", "rlinf.workers.actor.imitation_learner:DAggerLearner")
learners.register("interventions", "rlinf.workers.actor.imitation_learner:InterventionLearner")
learners.register("iql", "rlinf.workers.actor.iql_learner:IQLLearner")
learners.register("value", "rlinf.workers.actor.value_learner:ValueLearner")
learners.register("text", "rlinf.workers.actor.text_learner:TextLearner")
learners.register("sft", "rlinf.workers.actor.sft_learner:SftLearner")
