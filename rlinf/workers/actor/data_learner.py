"""Learning from stored transitions that every rank holds whole: any number of ranks makes the same updates."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from rlinf.algorithms.types import add_metrics
from rlinf.config.schema.data import DataConfig
from rlinf.config.schema.model import StatePolicyConfig
from rlinf.config.schema.root import EmbodiedConfig, RLinfConfig
from rlinf.config.schema.train import ActorConfig
from rlinf.data.datasets.episodes import Episode, chunk_episodes, read_episodes
from rlinf.data.messages.embodied import Trajectory
from rlinf.data.replay.buffer import ReplayBuffer, Transitions
from rlinf.errors import AlgorithmError, DatasetError
from rlinf.hybrid_engines.train.train_engine import MetricSums, TrainEngine
from rlinf.models.trainable import TrainableModel
from rlinf.utils.seeding import derive_seed
from rlinf.workers.actor.learner import EmbodiedLearner, MakeEngine, metrics_over_ranks

if TYPE_CHECKING:
    from typing_extensions import Self


class DataLearner(EmbodiedLearner):
    """Samples batches from stored transitions, uniformly and with replacement; see ``Learner``."""

    gamma = 1.0
    """Discount per action; losses that value states set their own."""
    needs_next = False
    """Whether the loss looks at what follows a transition."""

    def __init__(self, engine: TrainEngine, *, cfg: RLinfConfig) -> None:
        super().__init__(engine, cfg=cfg)
        self.stored = ReplayBuffer(1)

    @classmethod
    def build(cls, model: TrainableModel, make_engine: MakeEngine, *, cfg: RLinfConfig) -> Self:
        """See ``Learner``: also reads the dataset of an offline run."""
        learner = super().build(model, make_engine, cfg=cfg)
        if isinstance(cfg, EmbodiedConfig) and cfg.data is not None and not cfg.runner.only_eval:
            learner.take_data(read_episodes(cfg.data), cfg.data)
        return learner

    def compute_advantages(self, batch: Trajectory) -> dict[str, float]:
        """See ``Learner``; only learners that go on collecting take rollouts."""
        raise AlgorithmError(f"{type(self).__name__} learns from recorded data. Set runner.task_type=offline.")

    def take_data(self, episodes: Sequence[Episode], data: DataConfig) -> None:
        """Learn from a dataset from now on.

        Args:
            episodes: All of it, the same on every rank.
            data: The ``data`` section.

        Raises:
            DatasetError: Its states or actions are not those of the model.
        """
        _check_fits(episodes[0], self.actor, data)
        stored = chunk_episodes(
            episodes,
            chunk=self.actor.model.num_action_chunks,
            gamma=self.gamma,
            reward_coef=data.reward_coef,
            report=self.policy.forward_inputs_of,
            with_next=self.needs_next,
        )
        self.stored = ReplayBuffer(len(stored))
        self.take_transitions(stored)

    def take_transitions(self, new: Transitions) -> None:
        """Take transitions, the same on every rank, into what is stored and into the policy's running statistics."""
        self.stored.add(new)
        mine = new.select(slice(self.engine.rank, None, self.engine.world_size))
        valid = torch.ones(len(mine), dtype=torch.bool)
        self.policy.update_statistics(mine.inputs, valid, self.engine.all_reduce)

    def update(self, step: int) -> dict[str, float]:
        """See ``Learner``."""
        size = {"stored": float(len(self.stored))}
        if not len(self.stored):
            return size
        generator = torch.Generator().manual_seed(derive_seed(self.actor.seed, "actor", "data", step))
        sums: MetricSums = {}
        for _ in range(self.algorithm.update_epoch):
            batch = self.stored.sample(self.actor.global_batch_size, generator)
            add_metrics(sums, self.update_once(self.augment(batch, generator)))
        return metrics_over_ranks(self.engine, sums) | size

    def augment(self, batch: Transitions, generator: torch.Generator) -> Transitions:
        """Return what an update is made of: the batch as it is, or with its images changed at random.

        Args:
            batch: The whole update batch, on the host.
            generator: Source of randomness, the same on every rank.
        """
        del generator
        return batch

    @abc.abstractmethod
    def update_once(self, batch: Transitions) -> MetricSums:
        """Make one update.

        Args:
            batch: The whole update batch, the same on every rank.

        Returns:
            This rank's metric sums.
        """

    def micro_batches(self, batch: Transitions) -> list[Transitions]:
        """Return this rank's share of an update batch in parts, on the engine's device."""
        share, size = len(batch) // self.engine.world_size, self.actor.micro_batch_size
        first = self.engine.rank * share
        return [batch.rows(start, start + size).to(self.engine.device) for start in range(first, first + share, size)]

    def step_optimizer(self, optimizer: str) -> MetricSums:
        """Step an optimizer and return its report."""
        report = self.engine.step(optimizer)
        return {f"{optimizer}_{name}": torch.tensor([value, 1.0]) for name, value in report.items()}


def _check_fits(episode: Episode, actor: ActorConfig, data: DataConfig) -> None:
    model = actor.model
    if not isinstance(model, StatePolicyConfig):
        return
    states, actions = episode.obs.get("states"), episode.actions
    if model.obs_dim and (states is None or states.shape[-1] != model.obs_dim):
        held = "none" if states is None else states.shape[-1]
        raise DatasetError(
            f"data.path: '{data.path}' has {held} numbers per state; actor.model.obs_dim is {model.obs_dim}. Choose "
            "another dataset, or set actor.model.obs_dim."
        )
    if actions.is_floating_point() and actions.shape[-1] != model.action_dim:
        raise DatasetError(
            f"data.path: '{data.path}' has actions of {actions.shape[-1]} numbers; actor.model.action_dim is "
            f"{model.action_dim}. Choose another dataset, or set actor.model.action_dim."
        )
