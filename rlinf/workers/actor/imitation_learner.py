"""Imitation of recorded actions, of an expert's labels of rollouts, or of an operator's interventions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from rlinf.algorithms.imitation import imitation_loss
from rlinf.algorithms.types import finalize_metrics, metric_pair
from rlinf.config.schema.algorithm import DAggerLossConfig, HGDAggerLossConfig, ImitationLossConfig
from rlinf.config.schema.root import RLinfConfig
from rlinf.data.messages.embodied import Trajectory
from rlinf.data.replay.buffer import ReplayBuffer, Transitions
from rlinf.hybrid_engines.train.train_engine import MetricSums, Pass, TrainEngine
from rlinf.models.base_policy import ForwardType, PolicyEvaluation
from rlinf.workers.actor.data_learner import DataLearner

_LABELS = "labels"
_IMITATED = "imitated"
"""Where the inputs of chunks say which of their actions are labels, bool [N, C]; without it, all that were executed."""


class ImitationLearner(DataLearner):
    """Brings the policy closer to the actions that are stored; see ``Learner``."""

    def __init__(self, engine: TrainEngine, *, cfg: RLinfConfig) -> None:
        super().__init__(engine, cfg=cfg)
        assert isinstance(self.algorithm.loss, ImitationLossConfig)
        self.kind = self.algorithm.loss.imitation_loss

    def update_once(self, batch: Transitions) -> MetricSums:
        """See ``DataLearner``."""
        actions_in_batch = int(_imitated(batch).sum())
        if self.kind == "model":
            return self._update_by_own_loss(batch, actions_in_batch)

        def loss_fn(model: nn.Module, rows: Transitions) -> tuple[torch.Tensor, MetricSums]:
            evaluation: PolicyEvaluation = model(forward_inputs={**_seen(rows), "action": rows.actions})
            loss, metrics = imitation_loss(
                self.kind,
                logprobs=evaluation.logprobs,
                greedy=evaluation.greedy,
                actions=rows.actions,
                executed=_imitated(rows),
                denominator=actions_in_batch,
            )
            # The engine averages over ranks what is a share of a mean over all of them.
            return loss * self.engine.world_size, metrics

        sums = self.engine.forward_backward(self.micro_batches(batch), Pass.whole(loss_fn))
        return sums | self.step_optimizer("policy")

    def augment(self, batch: Transitions, generator: torch.Generator) -> Transitions:
        """See ``DataLearner``: with a loss of the model's own also the noise that it needs."""
        if self.kind != "model":
            return batch
        return replace(batch, inputs={**batch.inputs, **self.policy.supervised_draws(len(batch), generator)})

    def _update_by_own_loss(self, batch: Transitions, actions_in_batch: int) -> MetricSums:
        """Make an update by the loss that the policy's model is published with."""
        horizon = self.policy.num_supervised_actions

        def loss_fn(model: nn.Module, rows: Transitions) -> tuple[torch.Tensor, MetricSums]:
            actions, executed = _to_horizon(rows, horizon)
            losses = model(ForwardType.SUPERVISED, forward_inputs={**_seen(rows), "action": actions}).mean(-1)
            total = torch.where(executed, losses, 0.0).sum()
            metrics = {"imitation_loss": metric_pair(total.detach().double(), executed.sum())}
            # The engine averages over ranks what is a share of a mean over all of them.
            return total / actions_in_batch * self.engine.world_size, metrics

        sums = self.engine.forward_backward(self.micro_batches(batch), Pass.whole(loss_fn))
        return sums | self.step_optimizer("policy")


def _imitated(rows: Transitions) -> torch.Tensor:
    """Return which actions are labels, bool [N, C]."""
    return rows.inputs.get(_IMITATED, rows.executed)


def _seen(rows: Transitions) -> dict[str, torch.Tensor]:
    """Return what the policy saw, tensors [N, ...]."""
    return {name: tensor for name, tensor in rows.inputs.items() if name != _IMITATED}


def _to_horizon(rows: Transitions, horizon: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return actions [N, H, A] and which of them count [N, H]: a model may predict more than is executed."""
    missing = horizon - rows.actions.shape[1]
    # As data sets repeat the last action behind the end of an episode.
    last = rows.actions[:, -1:].expand(-1, missing, *rows.actions.shape[2:])
    imitated = _imitated(rows)
    return torch.cat([rows.actions, last], 1), torch.cat([imitated, imitated.new_zeros(len(imitated), missing)], 1)


class CollectingLearner(ImitationLearner):
    """Collects what to imitate from rollouts, all of it on every rank; see ``Learner``."""

    def __init__(self, engine: TrainEngine, *, cfg: RLinfConfig) -> None:
        super().__init__(engine, cfg=cfg)
        loss = self.algorithm.loss
        assert isinstance(loss, (DAggerLossConfig, HGDAggerLossConfig))
        self.stored = ReplayBuffer(loss.capacity)
        self.pending: Transitions | None = None

    def collect(
        self, inputs: dict[str, torch.Tensor], labels: torch.Tensor, labelled: torch.Tensor, executed: torch.Tensor
    ) -> torch.Tensor:
        """Lay out what the next update takes in; return which rows those are, bool [N].

        Args:
            inputs: Tensors [N, ...]: what the policy saw.
            labels: float [N, C, A] (int64 [N, C] if discrete); what to imitate.
            labelled: bool [N].
            executed: bool [N, C].
        """
        kept = labelled & executed.any(-1)
        self.pending = Transitions(
            inputs={name: tensor[kept] for name, tensor in inputs.items()},
            actions=labels[kept],
            rewards=torch.zeros(int(kept.sum())),
            next_inputs={},
            terminated=torch.zeros(int(kept.sum()), dtype=torch.bool),
            lengths=executed.sum(-1)[kept],
        )
        return kept

    def gather(self, trajectory: Trajectory) -> Callable[[torch.Tensor], torch.Tensor]:
        """Return what turns [T, b, ...] of this rank into [T * B, ...] of all, in an order that no rank decides."""
        order = torch.argsort(torch.cat(self.engine.all_gather(trajectory.env_ids)))

        def whole(tensor: torch.Tensor) -> torch.Tensor:
            as_bytes = tensor.dtype == torch.bool
            parts = self.engine.all_gather(tensor.byte() if as_bytes else tensor)
            rows = torch.cat(parts, 1)[:, order].flatten(0, 1)
            return rows.bool() if as_bytes else rows

        return whole

    def update(self, step: int) -> dict[str, float]:
        """See ``Learner``."""
        assert self.pending is not None
        new, self.pending = self.pending, None
        self.take_transitions(new)
        return super().update(step)

    def save(self, path: Path, *, in_background: bool = False) -> None:
        """See ``Learner``: one rank writes the labels."""
        super().save(path, in_background=in_background)
        if self.engine.is_main and len(self.stored):
            self.stored.save(path / _LABELS)

    def load(self, path: Path) -> None:
        """See ``Learner``."""
        super().load(path)
        self.stored.clear()
        if (path / _LABELS).is_dir():
            self.stored.load(path / _LABELS)


class DAggerLearner(CollectingLearner):
    """Imitates an expert's labels of what the policy meets."""

    def compute_advantages(self, batch: Trajectory) -> dict[str, float]:
        """See ``Learner``: gathers the labels of all ranks; the update takes them in."""
        whole = self.gather(batch)
        executed = whole(batch.executed)
        inputs = {name: whole(tensor) for name, tensor in batch.forward_inputs.items()}
        labels, labelled, acts = (inputs.pop(name) for name in ("label", "labelled", "expert_acts"))
        actions, acted = inputs.pop("action"), executed.any(-1)
        if labelled.ndim > 1:
            inputs[_IMITATED] = labelled & executed
            labelled = labelled.any(-1)
        kept = self.collect(inputs, labels, labelled, executed)
        # The same on every rank already: nothing is left to be summed.
        count, gap = acted.sum(), (labels - actions).float().flatten(1).square().mean(-1)
        return finalize_metrics(
            {
                "expert_acts": metric_pair((acts & acted).sum().double(), count),
                "labelled": metric_pair(kept.sum().double(), count),
                "expert_distance": metric_pair(gap[acted].double().sum(), count),
            }
        )


class InterventionLearner(CollectingLearner):
    """Imitates the operator's actions, those alone of a chunk (HG-DAgger, Kelly et al., 2019)."""

    def compute_advantages(self, batch: Trajectory) -> dict[str, float]:
        """See ``Learner``: gathers the interventions of all ranks; the update takes them in."""
        assert batch.intervened is not None
        whole = self.gather(batch)
        executed, intervened = whole(batch.executed), whole(batch.intervened)
        inputs = {name: whole(tensor) for name, tensor in batch.forward_inputs.items()}
        labels = inputs.pop("action")
        if intervened.shape[-1] > 1:
            inputs[_IMITATED] = intervened
        kept = self.collect(inputs, labels, intervened.any(-1), executed)
        # The same on every rank already: nothing is left to be summed.
        return finalize_metrics({"intervened": metric_pair(kept.sum().double(), executed.any(-1).sum())})
