"""On-policy learning by velocities: a flow policy against the one that acted, on actions that noise is mixed into."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

from rlinf.algorithms.aggregation import LossDenominators
from rlinf.algorithms.levels import expand_to_level, mask_at_level
from rlinf.algorithms.losses.inputs import LossInputs
from rlinf.algorithms.minibatch import MicroBatch, SampleOwnership, plan_micro_batches
from rlinf.algorithms.registry import policy_loss
from rlinf.config.schema.root import RLinfConfig
from rlinf.hybrid_engines.train.train_engine import MetricSums, Pass, TrainEngine
from rlinf.models.base_policy import ForwardType
from rlinf.models.velocity_policy import VelocityEvaluation
from rlinf.utils.seeding import derive_seed
from rlinf.workers.actor.policy_learner import Batch, PolicyLearner, Samples
from rlinf.workers.actor.policy_passes import inputs_on_device

ACTING = "acting"
"""Under which the engine remembers the weights that acted, where there are several update epochs."""


class VelocityLearner(PolicyLearner):
    """Improves a flow policy on rollouts it made itself, without log-probabilities.

    Each update epoch mixes new noise into the actions. Noise and times belong to samples, so that they are the same
    for every placement of a sample in ranks and micro-batches. The velocities of the policy that acted are computed
    before the epoch's first step, in the micro-batches that it will have.

    Args:
        engine: Holds the policy, a ``VelocityPolicy``.
        cfg: The recipe.
    """

    def __init__(self, engine: TrainEngine, *, cfg: RLinfConfig) -> None:
        super().__init__(engine, cfg=cfg)
        self.noise = torch.empty(0)
        self.time = torch.empty(0)
        self.old_velocity = torch.empty(0)

    def update(self, step: int) -> dict[str, float]:
        """See ``Learner``."""
        self.take_acting_weights()
        return super().update(step)

    def take_acting_weights(self) -> None:
        """Compare from now on with the weights that the policy has; called by all ranks together."""
        if self.algorithm.update_epoch > 1:  # else they are computed with before they change
            self.engine.remember(ACTING)

    def plan(self, *, step: int, epoch: int) -> list[torch.Tensor]:
        """See ``PolicyLearner``; also samples noise [N, C, A] and times [N], and computes the old velocities there."""
        assert self.samples is not None
        assert self.ownership is not None
        seed = derive_seed(self.actor.seed, "actor", "velocity", step, epoch)
        generator = torch.Generator().manual_seed(seed)
        ids, count = self.samples.ids, self.ownership.num_samples
        noise = torch.randn(count, *self.samples.logprobs.shape[1:], generator=generator)
        self.noise = noise[ids].to(self.engine.device)
        self.time = torch.rand(count, generator=generator)[ids].to(self.engine.device)
        minibatches = super().plan(step=step, epoch=epoch)
        with self.engine.weights_of(ACTING) if epoch else nullcontext():
            self.old_velocity = self._velocities(self.samples, self.ownership, minibatches)
        return minibatches

    def _velocities(
        self, samples: Samples, ownership: SampleOwnership, minibatches: list[torch.Tensor]
    ) -> torch.Tensor:
        """Return the present velocities of the samples of some minibatches, float32 [N, C, A]; 0 of all others."""
        size = self.actor.micro_batch_size
        batches = [
            batch
            for minibatch in minibatches
            for batch in plan_micro_batches(minibatch, ownership, rank=self.engine.rank, micro_batch_size=size)
        ]

        def velocity(model: nn.Module, batch: MicroBatch) -> torch.Tensor:
            evaluation: VelocityEvaluation = model(ForwardType.VELOCITY, **self._mixture(samples, batch.indices))
            return evaluation.velocity

        found = torch.zeros_like(self.noise)
        for batch, part in zip(batches, self.engine.forward(batches, Pass.whole(velocity)), strict=True):
            if not batch.is_padding:
                found[batch.indices] = part
        return found

    def _mixture(self, samples: Samples, rows: torch.Tensor) -> dict[str, Any]:
        """Return the arguments of the pass for some samples: inputs, noise and times."""
        inputs = inputs_on_device(samples.forward_inputs, rows, self.engine.device)
        return {"forward_inputs": inputs, "noise": self.noise[rows], "time": self.time[rows]}

    def _loss(
        self, model: nn.Module, samples: Samples, batch: Batch, denominators: LossDenominators
    ) -> tuple[torch.Tensor, MetricSums]:
        rows, masks = batch.rows, batch.masks
        evaluation: VelocityEvaluation = model(ForwardType.VELOCITY, **self._mixture(samples, rows))
        num_actions, action_dim = evaluation.velocity.shape[1:]
        loss_inputs = LossInputs(
            velocity=evaluation.velocity,
            old_velocity=self.old_velocity[rows],
            target=evaluation.target,
            saturated=evaluation.saturated,
            advantages=expand_to_level(
                samples.advantages[rows], "token_level", num_actions=num_actions, action_dim=action_dim
            ),
            loss_mask=masks["policy"],
            values=evaluation.values,
            prev_values=None if samples.prev_values is None else samples.prev_values[rows],
            returns=samples.returns[rows],
            value_mask=masks["value"],
            denominators=denominators,
        )
        return policy_loss(self.algorithm.loss_type, loss_inputs, self.algorithm.loss)

    def _masks(self, samples: Samples, batch: MicroBatch) -> dict[str, torch.Tensor]:
        executed = batch.masked(samples.action_mask)
        policy = mask_at_level(executed, "token_level", action_dim=samples.logprobs.shape[-1])
        return {"policy": policy, "entropy": policy, "value": batch.masked(samples.value_mask)}
