"""Learners from recorded data, and what they learn from."""

from typing import Any

import pytest
import torch

from rlinf.config.schema.algorithm import (
    BCLossConfig,
    DAggerLossConfig,
    EmbodiedAlgorithmConfig,
    HGDAggerLossConfig,
    IQLLossConfig,
    NoAdvantageConfig,
)
from rlinf.config.schema.data import DataConfig
from rlinf.config.schema.expert import ExpertConfig
from rlinf.config.schema.model import MLPPolicyConfig
from rlinf.config.schema.root import RLinfConfig
from rlinf.config.schema.train import ActorConfig, FSDPConfig, OptimConfig
from rlinf.data.datasets.episodes import Episode
from rlinf.data.messages.embodied import Trajectory
from rlinf.hybrid_engines.train.fsdp import FSDPEngine
from rlinf.models import get_model
from rlinf.models.trainable import TrainableModel
from rlinf.workers.actor.imitation_learner import CollectingLearner, DAggerLearner
from rlinf.workers.actor.learner import Learner, learners

CHUNK, DIM = 3, 2
LOSSES = {
    "offline_iql": IQLLossConfig(tau=0.1),
    "embodied_bc": BCLossConfig(),
    "embodied_bc_mse": BCLossConfig(imitation_loss="mse"),
}
COLLECTING = {
    "embodied_dagger": DAggerLossConfig(expert=ExpertConfig(expert_type="none"), imitation_loss="mse", capacity=60),
    "embodied_hgdagger": HGDAggerLossConfig(imitation_loss="mse", capacity=60),
}
DATA = DataConfig(format="memory", path="memory", reward_coef=0.5)


def make_episodes(states: int = 5) -> list[Episode]:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    return [
        Episode({"states": 3 + 2 * normal(n + 1, states)}, normal(n, DIM).tanh(), normal(n), terminated=n % 2 == 0)
        for n in (7, 12, 3, 8)
    ]


def make_rollout(
    step: int = 0, rank: int = 0, world_size: int = 1, envs: int = 8, steps: int = 4, labels: bool = True
) -> Trajectory:
    """Return a rank's share of a rollout: every other label or intervention counts, the last environment rests."""
    generator = torch.Generator().manual_seed(step)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    executed = torch.ones(steps, envs, CHUNK, dtype=torch.bool)
    executed[1, 0, 1:] = executed[:, -1] = False
    none = torch.zeros(steps, envs, CHUNK, dtype=torch.bool)
    labelled = torch.arange(steps * envs).view(steps, envs) % 2 == 0
    seen = {"states": normal(steps, envs, 5), "action": normal(steps, envs, CHUNK, DIM)}
    if labels:
        seen |= {"label": normal(steps, envs, CHUNK, DIM).tanh(), "labelled": labelled, "expert_acts": labelled}
    whole = Trajectory(
        forward_inputs=seen,
        logprobs=normal(steps, envs, CHUNK, DIM),
        values=None,
        rewards=normal(steps, envs, CHUNK),
        terminations=none,
        truncations=none,
        executed=executed,
        final_values=None,
        group_ids=torch.arange(envs),
        env_ids=torch.arange(envs),
        versions=torch.zeros(steps, envs, dtype=torch.int64),
        intervened=None if labels else labelled.unsqueeze(-1) & executed,
    )
    share = envs // world_size
    return whole.envs(rank * share, (rank + 1) * share)


def make_learner(
    name: str, sharding: str = "no_shard", rank: int = 0, world_size: int = 1, micro: int = 16
) -> Learner[Any]:
    torch.manual_seed(0)
    loss = {**LOSSES, **COLLECTING}[name]
    model = MLPPolicyConfig(
        model_type="mlp_policy",
        obs_dim=5,
        action_dim=DIM,
        num_action_chunks=CHUNK,
        hidden_dims=[16],
        add_q_head=loss.trains_q_heads,
        add_value_head=loss.trains_q_heads,
        normalize_obs=True,
    )
    actor = ActorConfig(model=model, optim=OptimConfig(lr=1e-2), global_batch_size=32, micro_batch_size=micro, seed=3)

    def make_engine(policy: TrainableModel) -> FSDPEngine:
        return FSDPEngine(
            policy,
            optim=actor.optim,
            fsdp=FSDPConfig(sharding_strategy=sharding),
            precision="fp32",
            device=torch.device("cpu"),
            rank=rank,
            world_size=world_size,
        )

    algorithm = EmbodiedAlgorithmConfig(
        adv_type="none", loss_type="none", update_epoch=4, advantage=NoAdvantageConfig(), loss=loss
    )
    cfg = RLinfConfig(algorithm=algorithm, actor=actor)
    learner = learners.get(loss.learner).build(get_model(model), make_engine, cfg=cfg)
    if name not in COLLECTING:
        learner.take_data(make_episodes(), DATA)
    return learner


def weights(learner: Learner[Any]) -> dict[Any, Any]:
    state = learner.engine.model.state_dict().items()
    return {name: (t.full_tensor() if hasattr(t, "full_tensor") else t).detach().clone() for name, t in state}


def train(learner: Learner[Any], first: int, last: int) -> dict[str, float]:
    engine = learner.engine
    for step in range(first, last + 1):
        if isinstance(learner, CollectingLearner):
            labels = isinstance(learner, DAggerLearner)
            learner.compute_advantages(make_rollout(step, engine.rank, engine.world_size, labels=labels))
        metrics = learner.update(step)
    return metrics


def assert_same(actual: dict[Any, Any], expected: dict[Any, Any], **tolerance: float) -> None:
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(actual[name], tensor, msg=name, **tolerance)


def learner_distance(step: int) -> float:
    rollout = make_rollout(step)
    gaps = (rollout.forward_inputs["label"] - rollout.forward_inputs["action"]).square().mean((-2, -1))
    return float(gaps[rollout.executed.any(-1)].mean())


def losses_of_rank(
    learner: Learner[Any], batch: Any, rank: int, world_size: int, monkeypatch: pytest.MonkeyPatch
) -> list[Any]:
    """Return the loss that a rank's micro-batches sum up to, for each optimizer that steps."""
    engine, losses = learner.engine, []

    def forward_backward(parts: Any, work: Any, *, optimizer: Any = None) -> dict[Any, Any]:
        losses.append(sum(float(work.use(work.call(engine.model, part), part)[0].detach()) for part in parts))
        return {}

    monkeypatch.setattr(engine, "rank", rank)
    monkeypatch.setattr(engine, "world_size", world_size)
    monkeypatch.setattr(engine, "forward_backward", forward_backward)
    monkeypatch.setattr(engine, "step", lambda optimizer="policy": {})
    monkeypatch.setattr(engine, "soft_update", lambda *arguments: None)
    learner.update_once(batch)
    return losses
