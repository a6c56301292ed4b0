"""The actor of embodied RL: an engine, the learner that the loss asks for, and collected trajectories."""

from __future__ import annotations

import functools
from pathlib import Path

import torch

from rlinf.config.schema.root import EmbodiedConfig
from rlinf.data.embodied import Trajectory
from rlinf.data.episodes import read_episodes
from rlinf.data.routing import sources
from rlinf.hybrid_engines.train import train_engines
from rlinf.hybrid_engines.train.base import TrainEngine
from rlinf.hybrid_engines.train.state import load_weights
from rlinf.models import get_policy
from rlinf.scheduler import Worker
from rlinf.utils.seeding import derive_seed
from rlinf.workers.actor.data_learner import DataLearner
from rlinf.workers.actor.learner import Learner, learners
from rlinf.workers.actor.publishing import WeightPublisher
from rlinf.workers.streams import TRAJECTORIES, collecting_group
from rlinf.workers.values import num_values


class EmbodiedFSDPActor(Worker):
    """One data-parallel rank of the actor.

    Args:
        cfg: The recipe.
        num_rollout_workers: World size of the rollout group.
        num_collecting_workers: World size of the group that collects trajectories.
    """

    def __init__(self, cfg: EmbodiedConfig, num_rollout_workers: int, num_collecting_workers: int) -> None:
        super().__init__()
        self.cfg = cfg
        self.route = sources(self._rank, num_collecting_workers, self._world_size)
        self.publisher = WeightPublisher(
            self,
            receivers={cfg.rollout.group_name: num_rollout_workers},
            bucket_bytes=cfg.weight_syncer.bucket.bucket_size,
        )
        self.engine: TrainEngine
        self.learner: Learner
        self.trajectory: Trajectory | None = None
        self.version = 0

    def init_worker(self) -> None:
        """Build the policy and its engine; equal on every rank, whatever the number of ranks."""
        actor, device = self.cfg.actor, torch.device(self.device)
        torch.manual_seed(derive_seed(actor.seed, "actor", "initial weights"))
        model = get_policy(actor.model, num_values=num_values(self.cfg))
        if self.cfg.runner.ckpt_path is not None:
            load_weights(Path(self.cfg.runner.ckpt_path), model)
        make_engine = functools.partial(
            train_engines.get(actor.training_backend),
            optim=actor.optim,
            critic_optim=actor.critic_optim,
            fsdp=actor.fsdp_config,
            precision=actor.model.precision,
            device=device,
            rank=self._rank,
            world_size=self._world_size,
        )
        build = learners.get(self.cfg.algorithm.loss.learner)
        self.learner = build(model, make_engine, algorithm=self.cfg.algorithm, actor=actor, device=device)
        self.at_shutdown(self.learner.close)
        self.engine = self.learner.engine
        if self.cfg.data is not None and not self.cfg.runner.only_eval:
            assert isinstance(self.learner, DataLearner)
            self.learner.take_data(read_episodes(self.cfg.data), self.cfg.data)

    @Worker.timer("sync_weights")
    def sync_model_to_rollout(self, *, version: int) -> None:
        """Send the weights to the rollout ranks that this rank serves.

        Args:
            version: Step of the run that produced them.
        """
        self.version = version
        self.engine.onload()
        self.publisher.publish(self.engine, version=version)
        if self.cfg.actor.enable_offload:
            self.engine.offload()

    @Worker.timer("receive_trajectories")
    def recv_rollout_trajectories(self) -> None:
        """Collect this rank's share of the rollout, in an order that does not depend on who is first."""
        messages = self.cfg.env.train.rollout_epoch * self.cfg.rollout.pipeline_stage_num
        group = collecting_group(self.cfg)
        parts = [self.recv(group, peer, tag=TRAJECTORIES) for _ in range(messages) for peer in self.route.peers]
        self.trajectory = Trajectory.concat(parts)

    @Worker.timer("advantages")
    def compute_advantages_and_returns(self) -> dict[str, float]:
        """Prepare the rollout for training.

        Returns:
            Metrics over all ranks, under ``rollout/``.
        """
        assert self.trajectory is not None
        metrics = self.learner.prepare(self.trajectory)
        if self.cfg.algorithm.staleness_threshold is not None:
            metrics |= self._staleness(self.trajectory)
        self.trajectory = None
        return {f"rollout/{name}": value for name, value in metrics.items()}

    def _staleness(self, trajectory: Trajectory) -> dict[str, float]:
        """Return by how many versions the weights that acted are older than those about to be trained."""
        age = (self.version - trajectory.versions)[trajectory.executed.any(-1)]
        parts = torch.tensor([age.sum(), age.numel(), age.max() if age.numel() else 0])
        total, count, oldest = torch.stack(self.engine.all_gather(parts)).unbind(1)
        return {
            "staleness_mean": float(total.sum() / count.sum().clamp(min=1)),
            "staleness_max": float(oldest.max()),
        }

    @Worker.timer("training")
    def run_training(self, *, step: int) -> dict[str, float]:
        """Update the policy on the prepared rollout.

        Args:
            step: Step of the run, from 1.

        Returns:
            Metrics over all ranks, under ``train/``.
        """
        self.engine.onload()
        metrics = self.learner.update(step)
        return {f"train/{name}": value for name, value in metrics.items()}

    def save_checkpoint(self, path: str) -> None:
        """Write weights, optimizers, counters and replay under ``path``."""
        self.engine.onload()
        self.learner.save(Path(path))
        if self.cfg.actor.enable_offload:
            self.engine.offload()

    def load_checkpoint(self, path: str) -> None:
        """Continue from what ``save_checkpoint`` wrote, under any number of ranks."""
        self.learner.load(Path(path))
