"""Supervised fine-tuning of policies on frames that are read from data sets as they are needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from rlinf.algorithms.types import add_metrics, metric_pair
from rlinf.config.schema.data import LeRobotDataConfig
from rlinf.config.schema.root import EmbodiedConfig, RLinfConfig
from rlinf.config.schema.vla import VLAConfig
from rlinf.data.frames import FrameStream
from rlinf.data.messages.embodied import Trajectory
from rlinf.errors import AlgorithmError
from rlinf.hybrid_engines.train.train_engine import MetricSums, Pass
from rlinf.models.base_policy import ForwardType
from rlinf.utils.seeding import derive_seed
from rlinf.workers.actor.learner import EmbodiedLearner, MakeEngine, metrics_over_ranks

if TYPE_CHECKING:
    from typing_extensions import Self

    from rlinf.models.trainable import TrainableModel

Rows = dict[str, torch.Tensor]


class FrameLearner(EmbodiedLearner):
    """Brings a policy closer to recorded actions by the loss that its model is published with; see ``Learner``.

    Batches, noise and augmentation are functions of the number of the update.
    """

    stream: FrameStream | None = None

    @classmethod
    def build(cls, model: TrainableModel, make_engine: MakeEngine, *, cfg: RLinfConfig) -> Self:
        """See ``Learner``: also opens the data sets."""
        learner = super().build(model, make_engine, cfg=cfg)
        assert isinstance(cfg, EmbodiedConfig)
        if not cfg.runner.only_eval:
            assert isinstance(cfg.data, LeRobotDataConfig)
            assert isinstance(cfg.actor.model, VLAConfig)
            learner.stream = FrameStream(
                cfg.data,
                horizon=learner.policy.num_supervised_actions,
                image_keys=cfg.actor.model.image_keys,
                seed=cfg.actor.seed,
            )
        return learner

    def compute_advantages(self, batch: Trajectory) -> dict[str, float]:
        """See ``Learner``: takes no rollouts."""
        raise AlgorithmError(f"{type(self).__name__} learns from recorded data. Set runner.task_type=offline.")

    def update(self, step: int) -> dict[str, float]:
        """See ``Learner``."""
        assert self.stream is not None
        sums: MetricSums = {}
        num_updates = self.algorithm.update_epoch
        for number in range((step - 1) * num_updates, step * num_updates):
            add_metrics(sums, self.update_once(number))
        return metrics_over_ranks(self.engine, sums) | {"frames": float(self.stream.num_frames)}

    def update_once(self, number: int) -> MetricSums:
        """Make the update of this number, from 0; return this rank's metric sums."""
        assert self.stream is not None
        num_actions = self.stream.num_actions(number, self.actor.global_batch_size)

        def loss_fn(model: nn.Module, rows: Rows) -> tuple[torch.Tensor, MetricSums]:
            is_action = rows.pop("is_action")
            losses = model(ForwardType.SUPERVISED, forward_inputs=rows).mean(-1)
            total = torch.where(is_action, losses, 0.0).sum()
            metrics = {"imitation_loss": metric_pair(total.detach().double(), is_action.sum())}
            # The engine averages over ranks what is a share of a mean over all of them.
            return total / num_actions * self.engine.world_size, metrics

        sums = self.engine.forward_backward(self.micro_batches(number), Pass.whole(loss_fn))
        report = self.engine.step("policy")
        return sums | {f"policy_{name}": torch.tensor([value, 1.0]) for name, value in report.items()}

    def micro_batches(self, number: int) -> list[Rows]:
        """Return this rank's share of an update batch in parts, on the engine's device."""
        assert self.stream is not None
        whole, size = self.actor.global_batch_size, self.actor.micro_batch_size
        generator = torch.Generator().manual_seed(derive_seed(self.actor.seed, "actor", "sft", number))
        draws = self.policy.supervised_draws(whole, generator)
        share = whole // self.engine.world_size
        first = self.engine.rank * share
        parts = []
        for start in range(first, first + share, size):
            rows = slice(start, min(start + size, first + share))
            batch = self.stream.read(number, whole, rows)
            inputs = self.policy.forward_inputs_of(batch.obs, batch.actions)
            inputs |= {name: tensor[rows] for name, tensor in draws.items()}
            inputs["is_action"] = batch.is_action
            parts.append({name: tensor.to(self.engine.device) for name, tensor in inputs.items()})
        return parts
