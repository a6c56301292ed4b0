"""Learners of TD3, CrossQ and RLPD."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from off_policy_toys import LOSS, make_learner, make_trajectory, train, weights

from rlinf.config.schema.algorithm import CrossQLossConfig, DemoBufferConfig, TD3LossConfig
from rlinf.data.replay.buffer import ReplayBuffer, Transitions

if TYPE_CHECKING:
    from rlinf.workers.actor.learner import Learner


CROSSQ_LOSS = CrossQLossConfig(**{f.name: getattr(LOSS, f.name) for f in dataclasses.fields(LOSS)})
TD3_LOSS = TD3LossConfig(tau=0.1, replay_buffer=LOSS.replay_buffer, critic_actor_ratio=2, target_update_freq=2)


def make_td3(**keys: int) -> Learner[Any]:
    return make_learner(TD3_LOSS, loss_type="embodied_td3", deterministic=True, **keys)


def make_crossq(**keys: int) -> Learner[Any]:
    return make_learner(CROSSQ_LOSS, loss_type="embodied_crossq", q_head_type="crossq", **keys)


def make_rlpd(demos: Path, **keys: int) -> Learner[Any]:
    demo_buffer = DemoBufferConfig(load_path=str(demos), batch_share=0.5)
    loss = dataclasses.replace(LOSS, demo_buffer=demo_buffer, num_min_q=2)
    return make_learner(loss, num_q_heads=5, q_head_type="layer_norm", **keys)


def train_on_shared_batches(rank: int, ranks: int, sharding: str) -> dict[str, Any]:
    """Train CrossQ on the same batches for any number of ranks; return what was learned."""
    micro = 32 // ranks
    learner = make_crossq(sharding=sharding, rank=rank, world_size=ranks, micro=micro, updates=3)
    replay, generator = ReplayBuffer(1000), torch.Generator().manual_seed(7)
    replay.add(Transitions.from_trajectory(make_trajectory(1), gamma=0.99))

    def draw(_: object) -> tuple[list[tuple[Transitions, torch.Tensor]], int]:
        rows = replay.sample(32, generator)
        noise = torch.randn(rows.actions.shape, generator=generator)
        part = slice(rank * micro, (rank + 1) * micro)
        return [(rows.map(lambda x: x[part]), noise[part])], micro

    learner._draw = draw
    train(learner, 1, 2)
    return {name: tensor for name, tensor in weights(learner).items() if name != "encoder.normalizer.count"}
