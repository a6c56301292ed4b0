"""Imitation of recorded actions."""

from __future__ import annotations

import torch
from torch import nn

from rlinf.algorithms.imitation import imitation_loss
from rlinf.config.schema.algorithm import AlgorithmConfig, ImitationLossConfig
from rlinf.config.schema.train import ActorConfig
from rlinf.data.replay import Transitions
from rlinf.hybrid_engines.train.base import MetricSums, TrainEngine
from rlinf.models.base_policy import BasePolicy, PolicyEvaluation
from rlinf.workers.actor.data_learner import DataLearner, executed_mask
from rlinf.workers.actor.learner import MakeEngine


class ImitationLearner(DataLearner):
    """Brings the policy closer to the actions that are stored.

    Args:
        engine: Holds the policy.
        loss: Keys of the loss.
        actor: The ``actor`` section.
        num_updates: Updates in one step.
    """

    def __init__(self, engine: TrainEngine, *, loss: ImitationLossConfig, actor: ActorConfig, num_updates: int) -> None:
        super().__init__(engine, actor=actor, num_updates=num_updates)
        self.kind = loss.imitation_loss

    def update_once(self, batch: Transitions) -> MetricSums:
        """See ``DataLearner``."""
        actions_in_batch = int(batch.lengths.sum())

        def loss_fn(model: nn.Module, rows: Transitions) -> tuple[torch.Tensor, MetricSums]:
            evaluation: PolicyEvaluation = model(forward_inputs={**rows.inputs, "action": rows.actions})
            loss, metrics = imitation_loss(
                self.kind,
                logprobs=evaluation.logprobs,
                greedy=evaluation.greedy,
                actions=rows.actions,
                executed=executed_mask(rows),
                denominator=actions_in_batch,
            )
            # The engine averages over ranks what is a share of a mean over all of them.
            return loss * self.engine.world_size, metrics

        return self.engine.forward_backward(self.micro_batches(batch), loss_fn) | self.step_optimizer("policy")


def build_imitation_learner(
    model: BasePolicy,
    make_engine: MakeEngine,
    *,
    algorithm: AlgorithmConfig,
    actor: ActorConfig,
    device: torch.device,
) -> ImitationLearner:
    """Build the learner of ``learner: imitation``; see ``learners``."""
    del device
    loss = algorithm.loss
    assert isinstance(loss, ImitationLossConfig)
    return ImitationLearner(make_engine(model), loss=loss, actor=actor, num_updates=algorithm.update_epoch)
