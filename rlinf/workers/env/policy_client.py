"""How an env rank gets actions: from the same rollout ranks all the time, or from the pool of all of them."""

from __future__ import annotations

import abc

import torch

from rlinf.config.schema.root import EmbodiedConfig
from rlinf.data.messages.action_request import ActionRequest, ActionResponse
from rlinf.data.messages.embodied import ChunkStep
from rlinf.data.messages.routing import destinations
from rlinf.models.base_policy import Mode
from rlinf.scheduler import Worker
from rlinf.scheduler.comm.work import AsyncWork
from rlinf.workers.load_balancer import LoadBalancer
from rlinf.workers.reward.exchange import RewardExchange
from rlinf.workers.rollout.collector import TrajectoryCollector
from rlinf.workers.rollout.delivery import TrajectoryDelivery
from rlinf.workers.streams import step_tag


class PolicyClient(abc.ABC):
    """Sends the policy the results of its actions, and receives the next ones, for each pipeline stage on its own.

    Args:
        worker: The env rank.
        cfg: The recipe.
    """

    def __init__(self, worker: Worker, cfg: EmbodiedConfig) -> None:
        self.worker = worker
        self.cfg = cfg
        self.mode: Mode = "train"

    def begin_epoch(self, mode: Mode, *, step: int, epoch: int) -> None:
        """Begin a rollout epoch.

        Args:
            mode: Whether it is one of training or of an evaluation.
            step: Step of the run; 0 in evaluation.
            epoch: Its number within the step.
        """
        self.mode = mode

    @abc.abstractmethod
    def send(self, stage: int, chunk: ChunkStep, *, is_last: bool) -> None:
        """Send the result of a chunk, or the first observations; ``is_last`` after a rollout epoch's last chunk."""

    @abc.abstractmethod
    def receive(self, stage: int) -> torch.Tensor:
        """Return the actions for what was sent last, [B, C, A] or int64 [B, C]."""

    @abc.abstractmethod
    def end_epoch(self) -> None:
        """End a rollout epoch."""

    @abc.abstractmethod
    def end_rollout(self, step: int) -> None:
        """End a step's rollout, or an evaluation (``step`` 0)."""


class PinnedPolicyClient(PolicyClient):
    """Exchanges with the same rollout ranks all the time, which also collect the trajectories.

    Args:
        worker: The env rank.
        cfg: The recipe.
        num_rollout_workers: World size of the rollout group.
    """

    def __init__(self, worker: Worker, cfg: EmbodiedConfig, *, num_rollout_workers: int) -> None:
        super().__init__(worker, cfg)
        self.route = destinations(worker._rank, worker._world_size, num_rollout_workers)

    def send(self, stage: int, chunk: ChunkStep, *, is_last: bool) -> None:
        """See ``PolicyClient``."""
        size = chunk.rewards.shape[0] // self.route.parts
        for part, peer in enumerate(self.route.peers):
            rows = chunk if self.route.parts == 1 else chunk.rows(part * size, (part + 1) * size)
            self.worker.send(rows, self.cfg.rollout.group_name, peer, tag=step_tag(self.mode, stage))

    def receive(self, stage: int) -> torch.Tensor:
        """See ``PolicyClient``."""
        rollout, tag = self.cfg.rollout.group_name, step_tag(self.mode, stage)
        parts = [self.worker.recv(rollout, peer, tag=tag) for peer in self.route.peers]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def end_epoch(self) -> None:
        """Do nothing: the rollout ranks count the epochs themselves."""

    def end_rollout(self, step: int) -> None:
        """Do nothing: the rollout ranks count the epochs themselves."""


class PooledPolicyClient(PolicyClient):
    """Sends each request to an idle rollout rank; the env rank collects the trajectories itself.

    Args:
        worker: The env rank.
        cfg: The recipe.
        balancer: Finds an idle rollout rank for each request.
        num_actor_workers: World size of the actor group.
        num_reward_workers: World size of the reward group; 0 where the environments' own rewards are learned from.
    """

    def __init__(
        self,
        worker: Worker,
        cfg: EmbodiedConfig,
        *,
        balancer: LoadBalancer,
        num_actor_workers: int,
        num_reward_workers: int,
    ) -> None:
        super().__init__(worker, cfg)
        self.balancer = balancer
        self.delivery = TrajectoryDelivery(worker, cfg, num_actor_workers)
        self.rewards = RewardExchange(worker, cfg, num_reward_workers) if num_reward_workers else None
        self.stages: list[_Stage] = []
        self.step = self.epoch = 0

    def begin_epoch(self, mode: Mode, *, step: int, epoch: int) -> None:
        """See ``PolicyClient``."""
        super().begin_epoch(mode, step=step, epoch=epoch)
        self.step, self.epoch = step, epoch
        self.stages = [_Stage() for _ in range(self.cfg.rollout.pipeline_stage_num if mode == "train" else 1)]

    def send(self, stage: int, chunk: ChunkStep, *, is_last: bool) -> None:
        """See ``PolicyClient``."""
        state = self.stages[stage]
        if self.mode == "eval" and is_last:
            return
        if self.mode == "train" and state.row > 0 and self.rewards is not None:
            assert state.actions is not None
            self.rewards.submit(stage, chunk, chunk.executed_actions(state.actions))
        acted_on = state.result.obs if state.result is not None and chunk.has_foreign_actions else None
        state.result = chunk
        state.submitted = self.balancer.submit(
            ActionRequest(
                env_rank=self.worker._rank,
                stage=stage,
                mode=self.mode,
                step=self.step,
                epoch=self.epoch,
                row=state.row,
                is_last=is_last,
                wants_values=state.collector.has_values,
                chunk=chunk,
                acted_on=acted_on,
            )
        )
        state.row += 1

    def receive(self, stage: int) -> torch.Tensor:
        """See ``PolicyClient``."""
        response, state = self._receive_response(stage), self.stages[stage]
        assert response.actions is not None
        if response.output is not None:
            state.collector.add_decision(response.output, version=response.version)
        state.actions = response.actions
        return response.actions

    def end_epoch(self) -> None:
        """Send the collected trajectories to the actor."""
        if self.mode == "eval":
            return
        for stage, state in enumerate(self.stages):
            response = self._receive_response(stage)
            if response.last_values is not None:
                state.collector.add_last_values(response.last_values)
            chunks = state.row - 1
            rewards = None if self.rewards is None else self.rewards.collect(stage, chunks)
            self.delivery.send(state.collector, env_ids=self._env_ids(stage), epoch=self.epoch, rewards=rewards)

    def end_rollout(self, step: int) -> None:
        """End the rollout for the rollout ranks, once all env ranks have ended it."""
        self.balancer.end_rollout(f"{self.mode}/{step}")

    def _receive_response(self, stage: int) -> ActionResponse:
        state = self.stages[stage]
        assert state.submitted is not None
        rank, tag = state.submitted.wait(), step_tag(self.mode, stage)
        response: ActionResponse = self.worker.recv(self.cfg.rollout.group_name, rank, tag=tag)
        if response.feedback is not None:
            assert state.result is not None
            state.collector.add_result(state.result, response.feedback)
        return response

    def _env_ids(self, stage: int) -> torch.Tensor:
        num_stages = self.cfg.rollout.pipeline_stage_num
        per_stage = self.cfg.env.train.total_num_envs // (self.worker._world_size * num_stages)
        first = (self.worker._rank * num_stages + stage) * per_stage
        return torch.arange(first, first + per_stage)


class _Stage:
    """State of one pipeline stage: its request, and what was collected so far."""

    def __init__(self) -> None:
        self.collector = TrajectoryCollector()
        self.row = 0
        self.submitted: AsyncWork[int] | None = None
        self.result: ChunkStep | None = None
        self.actions: torch.Tensor | None = None
