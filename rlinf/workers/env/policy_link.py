"""The env worker's way to the policy: fixed rollout ranks, or whichever is free."""

from __future__ import annotations

import abc
from dataclasses import replace

import torch

from rlinf.config.schema.root import EmbodiedConfig
from rlinf.data.messages.decisions import ActionAnswer, ActionRequest
from rlinf.data.messages.embodied import ChunkStep
from rlinf.data.messages.routing import destinations
from rlinf.models.base_policy import Mode
from rlinf.scheduler import Worker
from rlinf.scheduler.comm.work import AsyncWork
from rlinf.workers.dispatch import Dispatch
from rlinf.workers.reward.exchange import RewardExchange
from rlinf.workers.rollout.collector import TrajectoryCollector
from rlinf.workers.rollout.delivery import TrajectoryDelivery
from rlinf.workers.streams import step_tag


class PolicyLink(abc.ABC):
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


class BoundLink(PolicyLink):
    """The same rollout ranks all the time, which also collect the trajectories.

    Args:
        worker: The env rank.
        cfg: The recipe.
        num_rollout_workers: World size of the rollout group.
    """

    def __init__(self, worker: Worker, cfg: EmbodiedConfig, *, num_rollout_workers: int) -> None:
        super().__init__(worker, cfg)
        self.route = destinations(worker._rank, worker._world_size, num_rollout_workers)

    def send(self, stage: int, chunk: ChunkStep, *, is_last: bool) -> None:
        """See ``PolicyLink``."""
        size = chunk.rewards.shape[0] // self.route.parts
        for part, peer in enumerate(self.route.peers):
            rows = chunk if self.route.parts == 1 else chunk.rows(part * size, (part + 1) * size)
            self.worker.send(rows, self.cfg.rollout.group_name, peer, tag=step_tag(self.mode, stage))

    def receive(self, stage: int) -> torch.Tensor:
        """See ``PolicyLink``."""
        rollout, tag = self.cfg.rollout.group_name, step_tag(self.mode, stage)
        parts = [self.worker.recv(rollout, peer, tag=tag) for peer in self.route.peers]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def end_epoch(self) -> None:
        """Nothing: the rollout ranks count for themselves."""

    def end_rollout(self, step: int) -> None:
        """Nothing: the rollout ranks count for themselves."""


class DecoupledLink(PolicyLink):
    """Whichever rollout rank is free; the env rank collects the trajectories, since no rollout rank sees one whole.

    Args:
        worker: The env rank.
        cfg: The recipe.
        dispatch: Where free rollout ranks are found.
        num_actor_workers: World size of the actor group.
        num_reward_workers: World size of the reward group; 0 where the environments' own rewards are learned from.
    """

    def __init__(
        self,
        worker: Worker,
        cfg: EmbodiedConfig,
        *,
        dispatch: Dispatch,
        num_actor_workers: int,
        num_reward_workers: int,
    ) -> None:
        super().__init__(worker, cfg)
        self.dispatch = dispatch
        self.delivery = TrajectoryDelivery(worker, cfg, num_actor_workers)
        self.rewards = RewardExchange(worker, cfg, num_reward_workers) if num_reward_workers else None
        self.stages: list[_Stage] = []
        self.step = self.epoch = 0

    def begin_epoch(self, mode: Mode, *, step: int, epoch: int) -> None:
        """See ``PolicyLink``."""
        super().begin_epoch(mode, step=step, epoch=epoch)
        self.step, self.epoch = step, epoch
        self.stages = [_Stage() for _ in range(self.cfg.rollout.pipeline_stage_num if mode == "train" else 1)]

    def send(self, stage: int, chunk: ChunkStep, *, is_last: bool) -> None:
        """See ``PolicyLink``."""
        state = self.stages[stage]
        if self.mode == "eval" and is_last:
            return
        if self.mode == "train" and state.row > 0 and self.rewards is not None:
            assert state.actions is not None
            self.rewards.submit(stage, chunk, chunk.executed_actions(state.actions))
        acted_on = state.outcome.obs if state.outcome is not None and chunk.has_interventions else None
        state.outcome = chunk
        state.asked = self.dispatch.submit(
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
        """See ``PolicyLink``."""
        answer, state = self._take_answer(stage), self.stages[stage]
        assert answer.actions is not None
        if answer.output is not None:
            state.collector.add_decision(answer.output, version=answer.version)
        state.actions = answer.actions
        return answer.actions

    def end_epoch(self) -> None:
        """Let the actor have what was collected."""
        if self.mode == "eval":
            return
        for stage, state in enumerate(self.stages):
            answer = self._take_answer(stage)
            if answer.last_values is not None:
                state.collector.add_last_values(answer.last_values)
            chunks = state.row - 1
            rewards = None if self.rewards is None else self.rewards.collect(stage, chunks)
            self.delivery.send(state.collector, env_ids=self._env_ids(stage), epoch=self.epoch, rewards=rewards)

    def end_rollout(self, step: int) -> None:
        """Tell the rollout ranks, once all env ranks have got here."""
        self.dispatch.end(f"{self.mode}/{step}")

    def _take_answer(self, stage: int) -> ActionAnswer:
        state = self.stages[stage]
        assert state.asked is not None
        rank, tag = state.asked.wait(), step_tag(self.mode, stage)
        answer: ActionAnswer = self.worker.recv(self.cfg.rollout.group_name, rank, tag=tag)
        if answer.outlook is not None:
            assert state.outcome is not None
            # The observations are in the policy's report already, as far as training needs them.
            state.collector.add_outcome(replace(state.outcome, obs={}, final_obs=None), answer.outlook)
        return answer

    def _env_ids(self, stage: int) -> torch.Tensor:
        num_stages = self.cfg.rollout.pipeline_stage_num
        per_stage = self.cfg.env.train.total_num_envs // (self.worker._world_size * num_stages)
        first = (self.worker._rank * num_stages + stage) * per_stage
        return torch.arange(first, first + per_stage)


class _Stage:
    """What is under way in one pipeline stage."""

    def __init__(self) -> None:
        self.collector = TrajectoryCollector()
        self.row = 0
        self.asked: AsyncWork[int] | None = None
        self.outcome: ChunkStep | None = None
        self.actions: torch.Tensor | None = None
