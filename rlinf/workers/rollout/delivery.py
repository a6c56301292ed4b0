"""Hands collected trajectories to the actor group."""

from __future__ import annotations

import torch

from rlinf.config.schema.root import EmbodiedConfig
from rlinf.data.messages.routing import destinations
from rlinf.scheduler import Worker
from rlinf.workers.rollout.collector import TrajectoryCollector
from rlinf.workers.streams import TRAJECTORIES


class TrajectoryDelivery:
    """One collecting rank's way to the actor ranks that train on what it has collected.

    Args:
        worker: The rank.
        cfg: The recipe.
        num_actor_workers: World size of the actor group.
    """

    def __init__(self, worker: Worker, cfg: EmbodiedConfig, num_actor_workers: int) -> None:
        self.worker = worker
        self.cfg = cfg
        self.route = destinations(worker._rank, worker._world_size, num_actor_workers)

    def send(
        self, collector: TrajectoryCollector, *, env_ids: torch.Tensor, epoch: int, rewards: torch.Tensor | None
    ) -> None:
        """Send one rollout epoch of one pipeline stage.

        Args:
            collector: What was collected.
            env_ids: int64 [B]; global indices of its environments.
            epoch: The rollout epoch.
            rewards: float32 [T, B, C]; None takes the environments' own.
        """
        cfg = self.cfg.env.train
        num_groups = cfg.total_num_envs // cfg.group_size
        trajectory = collector.finish(
            env_ids=env_ids + epoch * cfg.total_num_envs,
            group_ids=env_ids // cfg.group_size + epoch * num_groups,
            rewards=rewards,
        )
        size = trajectory.num_envs // self.route.parts
        for part, peer in enumerate(self.route.peers):
            shard = trajectory.envs(part * size, (part + 1) * size)
            self.worker.send(shard, self.cfg.actor.group_name, peer, tag=TRAJECTORIES)
