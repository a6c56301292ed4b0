"""The collecting rank's end of the exchange with the reward group."""

from __future__ import annotations

import torch

from rlinf.config.schema.root import EmbodiedConfig
from rlinf.data.messages.embodied import ChunkStep
from rlinf.data.messages.rewards import RewardRequest
from rlinf.data.messages.routing import destinations
from rlinf.scheduler import Worker
from rlinf.workers.streams import reward_tag


class RewardExchange:
    """Sends step results without waiting, and collects their rewards at the end of a rollout epoch.

    Args:
        worker: The collecting rank.
        cfg: The recipe.
        num_reward_workers: World size of the reward group.
    """

    def __init__(self, worker: Worker, cfg: EmbodiedConfig, num_reward_workers: int) -> None:
        assert cfg.reward is not None
        self.worker = worker
        self.group = cfg.reward.group_name
        self.route = destinations(worker._rank, worker._world_size, num_reward_workers)
        self.first_stage = worker._rank * cfg.rollout.pipeline_stage_num
        self.resets_every_epoch = not cfg.env.train.auto_reset
        self._ended: dict[int, torch.Tensor] = {}

    def submit(self, stage: int, step: ChunkStep, actions: torch.Tensor) -> None:
        """Request the rewards of a chunk.

        Args:
            stage: Pipeline stage of the environments.
            step: Its step results.
            actions: [B, C, A] or [B, C], on the host.
        """
        first_env = (self.first_stage + stage) * len(step.executed)
        request = RewardRequest.from_step(step, actions, first_env=first_env, starts=self._ended.get(stage))
        self._ended[stage] = (step.terminations | step.truncations).any(-1)
        size = len(actions) // self.route.parts
        for part, peer in enumerate(self.route.peers):
            rows = request if self.route.parts == 1 else request.rows(part * size, (part + 1) * size)
            self.worker.send(rows, self.group, peer, tag=reward_tag(stage))

    def collect(self, stage: int, num_chunks: int) -> torch.Tensor:
        """Return the rewards of the chunks submitted since the last call, float32 [T, B, C].

        Args:
            stage: Pipeline stage of the environments.
            num_chunks: Their number (``T``).
        """
        if self.resets_every_epoch:
            self._ended.pop(stage, None)
        rows = [
            torch.cat([self.worker.recv(self.group, peer, tag=reward_tag(stage)) for peer in self.route.peers])
            for _ in range(num_chunks)
        ]
        return torch.stack(rows)
