"""On-policy learning by velocities: a flow policy against the one that acted, on actions that noise is mixed into."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from rlinf.algorithms.aggregation import LossDenominators
from rlinf.algorithms.levels import expand_to_level, mask_at_level
from rlinf.algorithms.losses.inputs import LossInputs
from rlinf.algorithms.minibatch import MicroBatch
from rlinf.algorithms.registry import policy_loss
from rlinf.config.schema.root import RLinfConfig
from rlinf.hybrid_engines.train.train_engine import MetricSums, TrainEngine
from rlinf.models.base_policy import ForwardType
from rlinf.models.materialize import materialize
from rlinf.models.trainable import TrainableModel
from rlinf.models.velocity_policy import VelocityEvaluation, VelocityPolicy
from rlinf.utils.seeding import derive_seed
from rlinf.workers.actor.learner import MakeEngine, freeze_copy
from rlinf.workers.actor.policy_learner import Batch, PolicyLearner, Samples
from rlinf.workers.actor.policy_passes import inputs_on_device

if TYPE_CHECKING:
    from typing_extensions import Self


class VelocityLearner(PolicyLearner):
    """Improves a flow policy on rollouts it made itself, without log-probabilities.

    Each update epoch mixes new noise into the actions. Noise and times belong to samples, so that they are the same
    for every placement of a sample in ranks and micro-batches.

    Args:
        engine: Holds the policy, a ``VelocityPolicy``.
        cfg: The recipe.
        old: Copy of the policy; takes the weights that acted at each update.
    """

    def __init__(self, engine: TrainEngine, *, cfg: RLinfConfig, old: VelocityPolicy) -> None:
        super().__init__(engine, cfg=cfg)
        materialize(old, engine.device)
        self.old = old
        self.noise = torch.empty(0)
        self.time = torch.empty(0)

    @classmethod
    def build(cls, model: TrainableModel, make_engine: MakeEngine, *, cfg: RLinfConfig) -> Self:
        """See ``Learner``."""
        assert isinstance(model, VelocityPolicy)
        old = freeze_copy(model)
        return cls(make_engine(model), cfg=cfg, old=old)

    def update(self, step: int) -> dict[str, float]:
        """See ``Learner``."""
        self.take_acting_weights()
        return super().update(step)

    def take_acting_weights(self) -> None:
        """Compare from now on with the weights that the policy has; called by all ranks together."""
        old = self.old.state_dict()
        for name, tensor in self.engine.export_weights("parts"):
            old[name].copy_(tensor)

    def plan(self, *, step: int, epoch: int) -> list[torch.Tensor]:
        """See ``PolicyLearner``; also samples the epoch's noise [N, C, A] and times [N]."""
        assert self.samples is not None
        assert self.ownership is not None
        seed = derive_seed(self.actor.seed, "actor", "velocity", step, epoch)
        generator = torch.Generator().manual_seed(seed)
        ids, count = self.samples.ids, self.ownership.num_samples
        noise = torch.randn(count, *self.samples.logprobs.shape[1:], generator=generator)
        self.noise = noise[ids].to(self.engine.device)
        self.time = torch.rand(count, generator=generator)[ids].to(self.engine.device)
        return super().plan(step=step, epoch=epoch)

    def _loss(
        self, model: nn.Module, samples: Samples, batch: Batch, denominators: LossDenominators
    ) -> tuple[torch.Tensor, MetricSums]:
        rows, masks = batch.rows, batch.masks
        inputs = inputs_on_device(samples.forward_inputs, rows, self.engine.device)
        mixture = {"forward_inputs": inputs, "noise": self.noise[rows], "time": self.time[rows]}
        evaluation: VelocityEvaluation = model(ForwardType.VELOCITY, **mixture)
        with torch.no_grad():
            old: VelocityEvaluation = self.old(ForwardType.VELOCITY, **mixture)
        num_actions, action_dim = evaluation.velocity.shape[1:]
        loss_inputs = LossInputs(
            velocity=evaluation.velocity,
            old_velocity=old.velocity,
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
