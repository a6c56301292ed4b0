"""Off-policy learning: a replay on every rank, and alternating updates of critics, policy and temperature."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rlinf.algorithms.registry import make_off_policy_algorithm
from rlinf.algorithms.types import add_metrics, metric_pair
from rlinf.config.schema.algorithm import (
    OffPolicyLossConfig,
    ReplayBufferConfig,
)
from rlinf.config.schema.root import RLinfConfig
from rlinf.data.messages.embodied import Trajectory
from rlinf.data.replay.buffer import ReplayBuffer, Transitions
from rlinf.data.replay.segments import remove_parts
from rlinf.errors import CheckpointError, NumericalError
from rlinf.hybrid_engines.train.optimizer import ScheduledOptimizer
from rlinf.hybrid_engines.train.train_engine import MetricSums, Pass, TrainEngine
from rlinf.models.base_policy import ForwardType
from rlinf.models.q_policy import ActorEvaluation, CriticEvaluation, QPolicy
from rlinf.utils.seeding import derive_seed
from rlinf.workers.actor.demonstrations import Demonstrations
from rlinf.workers.actor.learner import EmbodiedLearner, metrics_over_ranks

_STATE_FILE = "learner.pt"
_REPLAY_FOLDER = "replay"
_DEMOS_FOLDER = "interventions"

_Batch = tuple[Transitions, torch.Tensor]
"""A micro-batch of transitions and the noise [n, ...] of the actions that are sampled for it."""


class OffPolicyLearner(EmbodiedLearner):
    """Improves a policy on all that was collected so far.

    Args:
        engine: Holds the policy, a ``QPolicy``.
        cfg: The recipe.
    """

    def __init__(self, engine: TrainEngine, *, cfg: RLinfConfig) -> None:
        super().__init__(engine, cfg=cfg)
        loss = self.algorithm.loss
        assert isinstance(loss, OffPolicyLossConfig)
        self.loss = loss
        self.losses = make_off_policy_algorithm(
            self.algorithm.loss_type,
            loss,
            action_size=self.policy.action_size,
            device=engine.device,
            make_optimizer=partial(ScheduledOptimizer, fused=True),
        )
        self.updates_made = 0
        self.pending: Transitions | None = None
        self.replay = _make_replay(loss.replay_buffer, engine.rank, engine.world_size)
        demos = loss.demo_buffer
        self.demos = None if demos is None else Demonstrations(demos, num_ranks=engine.world_size)
        self.intervened: torch.Tensor | None = None

    @property
    def policy(self) -> QPolicy:
        """The policy, maybe sharded."""
        assert isinstance(self.engine.model, QPolicy)
        return self.engine.model

    def compute_advantages(self, batch: Trajectory) -> dict[str, float]:
        """See ``Learner``: lays the trajectories out as transitions; the update takes them into the replay."""
        new = Transitions.from_trajectory(batch.sorted(), gamma=self.loss.gamma)
        if not torch.isfinite(new.rewards).all():
            raise NumericalError(
                "Rewards are not finite: the environments returned a reward that is NaN or infinite. Look at "
                "env/reward and at the observations."
            )
        if self.demos is not None:
            self.demos.check_alike(new)
        self.pending, self.intervened = new, None
        rewards, count = new.rewards.double(), torch.tensor(len(new))
        metrics = {"chunk_reward": metric_pair(rewards.sum(), count)}
        if batch.intervened is not None:
            self.intervened = _interventions(batch)
            metrics["intervened"] = metric_pair(self.intervened.sum().double(), count)
        return metrics_over_ranks(self.engine, metrics)

    def update(self, step: int) -> dict[str, float]:
        """See ``Learner``; while the replays hold too little, they only fill."""
        self._take_pending()
        total, is_ready = self._readiness()
        size = {"replay_size": float(total)}
        if not is_ready:
            return size
        seed = derive_seed(self.actor.seed, "actor", self.engine.rank, "replay", step)
        generator = torch.Generator().manual_seed(seed)
        members = self._sample_members(step)
        sums: MetricSums = {}
        for chosen in members:
            self.updates_made += 1
            add_metrics(sums, self._update_critics(generator, chosen))
            if self.updates_made % self.loss.critic_actor_ratio == 0:
                add_metrics(sums, self._update_policy(generator))
            if self.updates_made % self.loss.target_update_freq == 0:
                for target, source in self.policy.targets():
                    self.engine.soft_update(target, source, self.loss.tau)
        return metrics_over_ranks(self.engine, sums) | size

    def save(self, path: Path, *, in_background: bool = False) -> None:
        """See ``Learner``: each rank writes its replay."""
        super().save(path, in_background=in_background)
        self.replay.save(path / _REPLAY_FOLDER / f"rank_{self.engine.rank}")
        if self.replay.keep_all:
            self.replay.flush()
        if self.demos is not None:
            self.demos.save(path / _DEMOS_FOLDER, rank=self.engine.rank)
        if self.engine.is_main:
            state: dict[str, Any] = {"updates_made": self.updates_made}
            if self.losses.temperature is not None:
                state |= self.losses.temperature.state_dict()
            torch.save(state, path / _STATE_FILE)

    def load(self, path: Path) -> None:
        """See ``Learner``; under another number of ranks the transitions are dealt out anew."""
        super().load(path)
        state = _read(path / _STATE_FILE)
        self.updates_made = state["updates_made"]
        if self.losses.temperature is not None:
            self.losses.temperature.load_state_dict(state)
        ranks = {"rank": self.engine.rank, "num_ranks": self.engine.world_size}
        self.replay.load(path / _REPLAY_FOLDER, **ranks)
        if self.demos is not None:
            self.demos.load(path / _DEMOS_FOLDER, **ranks)

    def close(self) -> None:
        """See ``Learner``: leaves no spilled transitions behind."""
        self.replay.close()

    def _take_pending(self) -> None:
        """Take the prepared transitions into replay and statistics; only now, so that a step is made whole or not."""
        assert self.pending is not None
        new, self.pending = self.pending, None
        self.replay.add(new)
        if self.demos is not None and self.intervened is not None:
            self.demos.add(new, self.intervened)
        self.policy.update_statistics(new.inputs, torch.ones(len(new), dtype=torch.bool), self.engine.all_reduce)

    def _readiness(self) -> tuple[int, bool]:
        """Return how much all replays hold, and whether that is enough.

        The same for all ranks: one that updates alone would block in its first collective.
        """
        size = len(self.replay)
        total, ranks = self.engine.all_reduce(torch.tensor([size, int(size > 0)])).tolist()
        enough = total >= self.loss.replay_buffer.min_buffer_size and ranks == self.engine.world_size
        return int(total), bool(enough)

    def _sample_members(self, step: int) -> list[torch.Tensor | None]:
        """Return for each update of a step the critics that form its targets; the same on all ranks."""
        if self.loss.num_min_q is None:
            return [None] * self.algorithm.update_epoch
        generator = torch.Generator().manual_seed(derive_seed(self.actor.seed, "actor", "target critics", step))
        orders = [
            torch.randperm(self.actor.model.num_q_heads, generator=generator)
            for _ in range(self.algorithm.update_epoch)
        ]
        return [order[: self.loss.num_min_q].to(self.engine.device) for order in orders]

    def _update_critics(self, generator: torch.Generator, members: torch.Tensor | None) -> MetricSums:
        batches, share = self._draw(generator)

        def loss_fn(model: nn.Module, batch: _Batch) -> tuple[torch.Tensor, MetricSums]:
            rows, noise = batch
            evaluation: CriticEvaluation = model(
                ForwardType.CRITIC,
                inputs=rows.inputs,
                action=rows.actions,
                next_inputs=rows.next_inputs,
                noise=self.losses.next_noise(noise),
                members=members,
            )
            loss, metrics = self.losses.critic_loss(
                q=evaluation.q,
                next_q=evaluation.next_q,
                next_logprobs=evaluation.next_logprobs,
                rewards=rows.rewards,
                terminated=rows.terminated,
                lengths=rows.lengths,
            )
            return loss / share, metrics

        metrics = self.engine.forward_backward(batches, Pass.whole(loss_fn), optimizer="critic")
        return metrics | self._step("critic")

    def _update_policy(self, generator: torch.Generator) -> MetricSums:
        batches, share = self._draw(generator)

        def loss_fn(model: nn.Module, batch: _Batch) -> tuple[torch.Tensor, MetricSums]:
            rows, noise = batch
            evaluation: ActorEvaluation = model(ForwardType.ACTOR, inputs=rows.inputs, noise=noise)
            proposed = {} if evaluation.distance is None else {"distance": evaluation.distance}
            loss, metrics = self.losses.actor_loss(q=evaluation.q, logprobs=evaluation.logprobs, **proposed)
            return loss / share, metrics

        metrics = self.engine.forward_backward(batches, Pass.whole(loss_fn), optimizer="policy")
        stepped = metrics | self._step("policy")
        temperature = self.losses.temperature
        return stepped if temperature is None else stepped | temperature.update(metrics, self.engine.all_reduce)

    def _step(self, optimizer: str) -> MetricSums:
        report = self.engine.step(optimizer)
        return {f"{optimizer}_{name}": torch.tensor([value, 1.0]) for name, value in report.items()}

    def _draw(self, generator: torch.Generator) -> tuple[list[_Batch], int]:
        """Return this rank's micro-batches of an update, and the transitions in them."""
        share = self.actor.global_batch_size // self.engine.world_size
        rows = self._sample(share, generator)
        inputs, next_inputs = (self.policy.augment(seen, generator) for seen in (rows.inputs, rows.next_inputs))
        rows = replace(rows, inputs=inputs, next_inputs=next_inputs)
        noise = torch.randn(share, *self.policy.noise_shape, generator=generator)
        size, device = self.actor.micro_batch_size, self.engine.device
        batches = [
            (rows.rows(start, start + size).to(device), noise[start : start + size].to(device))
            for start in range(0, share, size)
        ]
        return batches, share

    def _sample(self, count: int, generator: torch.Generator) -> Transitions:
        if self.demos is None or not len(self.demos):
            return self.replay.sample(count, generator)
        from_demos = round(count * self.demos.batch_share)
        own = self.replay.sample(count - from_demos, generator)
        return Transitions.concat([own, *self.demos.sample(from_demos, generator)])


def _interventions(trajectory: Trajectory) -> torch.Tensor:
    """Return for each transition of a trajectory whether it holds an intervention, bool [N]."""
    ordered = trajectory.sorted()
    assert ordered.intervened is not None
    return ordered.intervened.any(-1).flatten(0, 1)[ordered.executed.any(-1).flatten(0, 1)]


def _make_replay(cfg: ReplayBufferConfig, rank: int, num_ranks: int) -> ReplayBuffer:
    """Return a rank's empty replay; the recipe's numbers are over all ranks."""
    if cfg.folder is not None and rank == 0:
        remove_parts(Path(cfg.folder), num_ranks)
    return ReplayBuffer(
        -(-cfg.capacity // num_ranks),
        memory_bytes=None if cfg.memory_bytes is None else cfg.memory_bytes // num_ranks,
        folder=None if cfg.folder is None else Path(cfg.folder) / f"rank_{rank}",
        keep_all=cfg.auto_save,
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise CheckpointError(
            f"'{path}' is missing: the checkpoint was written by an on-policy algorithm, or lost files. Start from its "
            "weights alone with runner.ckpt_path."
        ) from error
    except Exception as error:
        from rlinf.hybrid_engines.train.safe_reader import refusal

        raise refusal(f"the file '{path}'", error) from error
    return content
