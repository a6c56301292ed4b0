"""Update batches of recorded frames, on which a policy has the loss that its model is published with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from rlinf.algorithms.types import metric_pair
from rlinf.config.schema.data import LeRobotDataConfig
from rlinf.config.schema.root import RLinfConfig
from rlinf.config.schema.vla import FlowVLAConfig, VLAConfig
from rlinf.data.datasets.lerobot import LeRobotDataset
from rlinf.data.frames import FrameBatch, FrameStream
from rlinf.data.messages.embodied import Observation
from rlinf.hybrid_engines.train.train_engine import MetricSums, Pass, TrainEngine
from rlinf.models.base_policy import BasePolicy, ForwardType
from rlinf.models.vla.guidance import conditional_frames, conditioned
from rlinf.models.vla.observed import tasks_of
from rlinf.models.vla.rl_token import Reconstruction
from rlinf.utils.logging import get_logger
from rlinf.utils.seeding import derive_seed

Rows = dict[str, torch.Tensor]


_COMPARED_FRAMES = 2000
"""Frames of a data set whose actions are compared with the model's statistics."""
_RARE = 0.02
"""Share of actions that may be far from the statistics, as those outside of quantiles are."""


def other_units(policy: BasePolicy, datasets: Sequence[LeRobotDataset]) -> list[str]:
    """Return what is to be said of data sets whose actions are far from the statistics that a policy normalises by.

    Args:
        policy: Says how far they are.
        datasets: Which are read in part.
    """
    found = []
    for dataset in datasets:
        chosen = np.linspace(0, dataset.num_frames - 1, min(dataset.num_frames, _COMPARED_FRAMES)).astype(np.int64)
        actions = torch.from_numpy(dataset.column("action")[chosen]).float().unsqueeze(1)
        obs: Observation = {}
        if "observation.state" in dataset.features:
            obs["states"] = torch.from_numpy(dataset.column("observation.state")[chosen]).float()
        shares = policy.actions_beyond(obs, actions)
        far = [f"{number} ({share:.0%})" for number, share in enumerate(shares) if share > _RARE]
        if far:
            found.append(
                f"actor.model.unnorm_key: of the actions in '{dataset.root}', these numbers are far from the "
                f"statistics of the model, with the share of frames: {', '.join(far)}. If they are not of the same "
                "robot and units, write statistics of this data set (toolkits/vla/write_statistics.py) or correct "
                "actor.model.norm_scheme and delta_actions."
            )
    return found


class SupervisedFrames:
    """Reads batches of frames, of which each rank has its share, and computes their gradient.

    With ``use_rlt`` the loss is that of the token's reconstruction and, weighted, the model's own.

    Frames, noise and augmentation of a batch are functions of its number.

    Args:
        engine: Holds the policy.
        cfg: The recipe.
        data: The data sets.
        batch_size: Frames of a batch, over all ranks.
    """

    def __init__(self, engine: TrainEngine, *, cfg: RLinfConfig, data: LeRobotDataConfig, batch_size: int) -> None:
        assert isinstance(cfg.actor.model, VLAConfig)
        assert isinstance(engine.model, BasePolicy)
        self.engine, self.actor, self.batch_size = engine, cfg.actor, batch_size
        self.policy = engine.model
        model = cfg.actor.model
        token = model.rlt if isinstance(model, FlowVLAConfig) and model.use_rlt else None
        self.learns_token = token is not None
        self.vla_loss_weight = 1.0 if token is None else token.vla_loss_weight
        self.stream = FrameStream(
            data,
            horizon=self.policy.num_supervised_actions,
            image_keys=cfg.actor.model.image_keys,
            seed=cfg.actor.seed,
        )
        if engine.rank == 0:
            for line in other_units(self.policy, self.stream.datasets):
                get_logger(__name__).warning(line)

    def forward_backward(self, number: int, *, weight: float = 1.0) -> MetricSums:
        """Accumulate the gradient of a batch's mean loss over actions before the ends of their episodes.

        The token's loss is a mean over frames.

        Args:
            number: Of the batch, from 0.
            weight: Factor of the loss; the metric is without it.

        Returns:
            This rank's metric sums.
        """
        num_actions = self.stream.num_actions(number, self.batch_size)

        def loss_fn(model: nn.Module, rows: Rows) -> tuple[torch.Tensor, MetricSums]:
            is_action, labels = rows.pop("is_action"), rows.pop("labels", None)
            losses, errors = self._evaluate(model, rows)
            parts: list[torch.Tensor] = []
            metrics: MetricSums = {}
            if losses is not None:
                losses = torch.where(is_action, losses.mean(-1), 0.0)
                total = losses.sum()
                parts.append(total * (self.vla_loss_weight * weight) / num_actions)
                metrics["imitation_loss"] = metric_pair(total.detach().double(), is_action.sum())
                if labels is not None:
                    metrics |= _metrics_of_labels(labels, losses.detach().double(), is_action)
            if errors is not None:
                total = errors.sum()
                parts.append(total * weight / self.batch_size)
                count = torch.tensor(float(len(errors)))
                metrics["reconstruction_loss"] = metric_pair(total.detach().double(), count)
            # The engine averages over ranks what is a share of a mean over all of them.
            return torch.stack(parts).sum() * self.engine.world_size, metrics

        return self.engine.forward_backward(self.micro_batches(number), Pass.whole(loss_fn))

    def _evaluate(self, model: nn.Module, rows: Rows) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Return losses of actions [n, H, A] and errors [n] of a token's reconstruction; None is not learned."""
        if not self.learns_token:
            return model(ForwardType.SUPERVISED, forward_inputs=rows), None
        found: Reconstruction = model(ForwardType.RECONSTRUCTION, forward_inputs=rows)
        return found.losses, found.errors

    def micro_batches(self, number: int) -> list[Rows]:
        """Return this rank's share of a batch in parts, on the engine's device."""
        whole, size = self.batch_size, self.actor.micro_batch_size
        generator = torch.Generator().manual_seed(derive_seed(self.actor.seed, "actor", "sft", number))
        draws = self.policy.supervised_draws(whole, generator)
        share = whole // self.engine.world_size
        first = self.engine.rank * share
        parts = []
        for start in range(first, first + share, size):
            rows = slice(start, min(start + size, first + share))
            batch = self.stream.read(number, whole, rows)
            obs, labels = self._with_labels(batch, number, rows)
            inputs = self.policy.forward_inputs_of(obs, batch.actions)
            inputs |= {name: tensor[rows] for name, tensor in draws.items()}
            inputs["is_action"] = batch.is_action
            inputs |= labels
            parts.append({name: tensor.to(self.engine.device) for name, tensor in inputs.items()})
        return parts

    def _with_labels(self, batch: FrameBatch, number: int, rows: slice) -> tuple[Observation, Rows]:
        """Return observations whose sentences say the label where that is to be learned, and labels and choice."""
        model = self.actor.model
        if batch.is_positive is None or not isinstance(model, FlowVLAConfig):
            return batch.obs, {}
        generator = torch.Generator().manual_seed(derive_seed(self.actor.seed, "actor", "guidance", number))
        draws = torch.rand(self.batch_size, generator=generator)[rows]
        chosen = conditional_frames(batch.is_positive, draws, model.guidance)
        sentences = zip(tasks_of(batch.obs), batch.is_positive.tolist(), chosen.tolist(), strict=True)
        tasks = [conditioned(task, good) if is_said else task for task, good, is_said in sentences]
        return {**batch.obs, "task_descriptions": tasks}, {"labels": torch.stack([batch.is_positive, chosen], 1)}


def _metrics_of_labels(labels: torch.Tensor, losses: torch.Tensor, is_action: torch.Tensor) -> MetricSums:
    """Return how many frames are positive, and how many are learned as that; and losses with the word and without."""
    positive, said = labels.unbind(1)
    count = torch.tensor(float(len(labels)))
    metrics = {
        "positive_frames": metric_pair(positive.sum().double(), count),
        "conditional_frames": metric_pair(said.sum().double(), count),
    }
    for name, rows in (("conditional_loss", said), ("unconditional_loss", ~said)):
        metrics[name] = metric_pair(losses[rows].sum(), is_action[rows].sum())
    return metrics
