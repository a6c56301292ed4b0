"""Supervised fine-tuning of policies on frames that are read from data sets as they are needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rlinf.algorithms.types import add_metrics
from rlinf.config.schema.data import LeRobotDataConfig
from rlinf.config.schema.root import EmbodiedConfig, RLinfConfig
from rlinf.data.messages.embodied import Trajectory
from rlinf.errors import AlgorithmError
from rlinf.hybrid_engines.train.train_engine import MetricSums
from rlinf.workers.actor.learner import EmbodiedLearner, MakeEngine, metrics_over_ranks
from rlinf.workers.actor.supervised_frames import SupervisedFrames

if TYPE_CHECKING:
    from typing_extensions import Self

    from rlinf.models.trainable import TrainableModel


class FrameLearner(EmbodiedLearner):
    """Brings a policy closer to recorded actions by the loss that its model is published with; see ``Learner``."""

    frames: SupervisedFrames | None = None

    @classmethod
    def build(cls, model: TrainableModel, make_engine: MakeEngine, *, cfg: RLinfConfig) -> Self:
        """See ``Learner``: also opens the data sets."""
        learner = super().build(model, make_engine, cfg=cfg)
        assert isinstance(cfg, EmbodiedConfig)
        if not cfg.runner.only_eval:
            assert isinstance(cfg.data, LeRobotDataConfig)
            size = cfg.actor.global_batch_size
            learner.frames = SupervisedFrames(learner.engine, cfg=cfg, data=cfg.data, batch_size=size)
        return learner

    def compute_advantages(self, batch: Trajectory) -> dict[str, float]:
        """See ``Learner``: takes no rollouts."""
        raise AlgorithmError(f"{type(self).__name__} learns from recorded data. Set runner.task_type=offline.")

    def update(self, step: int) -> dict[str, float]:
        """See ``Learner``."""
        assert self.frames is not None
        sums: MetricSums = {}
        num_updates = self.algorithm.update_epoch
        for number in range((step - 1) * num_updates, step * num_updates):
            add_metrics(sums, self.update_once(number))
        return metrics_over_ranks(self.engine, sums) | {"frames": float(self.frames.stream.num_frames)}

    def update_once(self, number: int) -> MetricSums:
        """Make the update of this number, from 0; return this rank's metric sums."""
        assert self.frames is not None
        sums = self.frames.forward_backward(number)
        report = self.engine.step("policy")
        return sums | {f"policy_{name}": torch.tensor([value, 1.0]) for name, value in report.items()}
