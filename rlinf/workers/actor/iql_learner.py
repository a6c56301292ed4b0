"""Implicit Q-learning from recorded episodes: critics and values, then the policy, from one batch."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from rlinf.algorithms.iql import IQL
from rlinf.config.schema.algorithm import IQLLossConfig
from rlinf.config.schema.root import RLinfConfig
from rlinf.data.replay.buffer import Transitions
from rlinf.hybrid_engines.train.train_engine import MetricSums, Pass, TrainEngine
from rlinf.models.base_policy import ForwardType
from rlinf.models.control.iql_policy import AdvantageEvaluation, IQLPolicy, ValueEvaluation
from rlinf.workers.actor.data_learner import DataLearner


class IQLLearner(DataLearner):
    """Improves on the policies that recorded the data; its engine holds an ``IQLPolicy``."""

    needs_next = True

    def __init__(self, engine: TrainEngine, *, cfg: RLinfConfig) -> None:
        super().__init__(engine, cfg=cfg)
        loss = self.algorithm.loss
        assert isinstance(loss, IQLLossConfig)
        self.tau, self.gamma = loss.tau, loss.gamma
        self.losses = IQL(loss)

    def augment(self, batch: Transitions, generator: torch.Generator) -> Transitions:
        """See ``DataLearner``: the images before and after each transition are shifted by themselves (DrQ)."""
        policy = self.policy
        assert isinstance(policy, IQLPolicy)
        inputs, next_inputs = (policy.augment(seen, generator) for seen in (batch.inputs, batch.next_inputs))
        return replace(batch, inputs=inputs, next_inputs=next_inputs)

    def update_once(self, batch: Transitions) -> MetricSums:
        """See ``DataLearner``."""
        parts, share = self.micro_batches(batch), len(batch) // self.engine.world_size

        def critic_loss(model: nn.Module, rows: Transitions) -> tuple[torch.Tensor, MetricSums]:
            evaluation: ValueEvaluation = model(
                ForwardType.CRITIC, inputs=rows.inputs, action=rows.actions, next_inputs=rows.next_inputs
            )
            loss, metrics = self.losses.critic_loss(
                q=evaluation.q,
                target_q=evaluation.target_q,
                values=evaluation.values,
                next_values=evaluation.next_values,
                rewards=rows.rewards,
                terminated=rows.terminated,
                lengths=rows.lengths,
            )
            return loss / share, metrics

        def actor_loss(model: nn.Module, rows: Transitions) -> tuple[torch.Tensor, MetricSums]:
            evaluation: AdvantageEvaluation = model(ForwardType.ACTOR, inputs=rows.inputs, action=rows.actions)
            logprobs = (evaluation.logprobs.sum(-1) * rows.executed).sum(-1)
            loss, metrics = self.losses.actor_loss(
                logprobs=logprobs, target_q=evaluation.target_q, values=evaluation.values
            )
            return loss / share, metrics

        sums: MetricSums = {}
        for optimizer, loss_fn in (("critic", critic_loss), ("policy", actor_loss)):
            sums |= self.engine.forward_backward(parts, Pass.whole(loss_fn), optimizer=optimizer)
            sums |= self.step_optimizer(optimizer)
        policy = self.policy
        assert isinstance(policy, IQLPolicy)
        self.engine.soft_update(policy.target_critic, policy.critic, self.tau)
        return sums
