"""What an actor does with rollouts; ``loss_type`` says through its dataclass which kind of learner it needs."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from rlinf.algorithms.types import finalize_metrics
from rlinf.data.embodied import Trajectory
from rlinf.hybrid_engines.train.base import MetricSums, TrainEngine
from rlinf.models.base_policy import BasePolicy
from rlinf.registry import Registry

MakeEngine = Callable[[BasePolicy], TrainEngine]


class Learner(abc.ABC):
    """Improves the policy that an engine holds.

    Args:
        engine: Holds the policy.
    """

    def __init__(self, engine: TrainEngine) -> None:
        self.engine = engine

    @abc.abstractmethod
    def prepare(self, trajectory: Trajectory) -> dict[str, float]:
        """Take this rank's share of a rollout.

        Args:
            trajectory: All environments of this rank.

        Returns:
            Metrics over all ranks.

        Raises:
            NumericalError: A reward or value was not finite.
        """

    @abc.abstractmethod
    def update(self, step: int) -> dict[str, float]:
        """Make the step's optimizer updates.

        Args:
            step: Step of the run, from 1; names the random draws.

        Returns:
            Metrics over all ranks, micro-batches and optimizer steps.

        Raises:
            NumericalError: A gradient is not finite.
        """

    def save(self, path: Path) -> None:
        """Write all that changes under the folder ``path``; called by all ranks together."""
        self.engine.save(path)

    def load(self, path: Path) -> None:
        """Read what ``save`` wrote, under any number of ranks."""
        self.engine.load(path)

    def close(self) -> None:
        """Leave the process group, and what else must not be left behind."""
        self.engine.close()


def accumulate(sums: MetricSums, metrics: MetricSums) -> None:
    """Add metrics to what has been summed so far."""
    for name, value in metrics.items():
        sums[name] = sums[name] + value if name in sums else value


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
        total = engine.all_reduce(torch.stack([sums[name].to(engine.device).double() for name in names]))
        metrics = finalize_metrics(dict(zip(names, total.cpu(), strict=True)))
    if steps:
        metrics |= {name: sum(step[name] for step in steps) / len(steps) for name in steps[0]}
    return metrics


learners: Registry[Callable[..., Learner]] = Registry("learner")
"""Called as ``builder(model, make_engine, algorithm=..., actor=..., device=...)``; the engine may shard the model."""
learners.register_lazy("on_policy", "rlinf.workers.actor.policy_learner:build_policy_learner")
learners.register_lazy("velocity", "rlinf.workers.actor.velocity_learner:build_velocity_learner")
learners.register_lazy("off_policy", "rlinf.workers.actor.off_policy_learner:build_off_policy_learner")
learners.register_lazy("imitation", "rlinf.workers.actor.imitation_learner:build_imitation_learner")
learners.register_lazy("interventions", "rlinf.workers.actor.imitation_learner:build_intervention_learner")
learners.register_lazy("iql", "rlinf.workers.actor.iql_learner:build_iql_learner")
