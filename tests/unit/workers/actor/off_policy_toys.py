"""A small off-policy learner, what it learns from, and comparisons of what it learned."""

from functools import partial
from typing import Any

import torch

from rlinf.config.schema.algorithm import (
    CrossQLossConfig,
    EmbodiedAlgorithmConfig,
    EntropyTuningConfig,
    NoAdvantageConfig,
    ReplayBufferConfig,
    SACLossConfig,
    TD3LossConfig,
)
from rlinf.config.schema.model import FlowPolicyConfig, MLPPolicyConfig
from rlinf.config.schema.optim import AdamWConfig
from rlinf.config.schema.root import RLinfConfig
from rlinf.config.schema.train import ActorConfig, FSDPConfig, OptimConfig
from rlinf.data.messages.embodied import Trajectory
from rlinf.hybrid_engines.train.fsdp import FSDPEngine
from rlinf.models import get_model
from rlinf.workers.actor.learner import Learner, learners

STEPS, ENVS, CHUNK, DIM = 6, 8, 3, 2
LOSS = SACLossConfig(
    tau=0.1,
    replay_buffer=ReplayBufferConfig(capacity=200, min_buffer_size=20),
    entropy_tuning=EntropyTuningConfig(optim=AdamWConfig(lr=1e-2)),
)


def make_trajectory(seed: int = 0, envs: int = ENVS) -> Trajectory:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    truncations = torch.zeros(STEPS, envs, CHUNK, dtype=torch.bool)
    terminations, executed = truncations.clone(), ~truncations
    truncations[2, 0, 1] = terminations[4, 1, 0] = True
    executed[2, 0, 2:] = executed[4, 1, 1:] = False
    return Trajectory(
        forward_inputs={"states": normal(STEPS, envs, 5), "action": normal(STEPS, envs, CHUNK, DIM).tanh()},
        logprobs=normal(STEPS, envs, CHUNK, DIM),
        values=None,
        rewards=normal(STEPS, envs, CHUNK),
        terminations=terminations,
        truncations=truncations,
        executed=executed,
        final_values=None,
        group_ids=torch.arange(envs),
        env_ids=torch.arange(envs),
        versions=torch.zeros(STEPS, envs, dtype=torch.int64),
        next_inputs={"states": normal(STEPS, envs, 5)},
    )


def make_learner(
    loss: TD3LossConfig | CrossQLossConfig | SACLossConfig = LOSS,
    sharding: str = "no_shard",
    rank: int = 0,
    world_size: int = 1,
    updates: int = 4,
    micro: int = 16,
    loss_type: str = "embodied_sac",
    model_config: type[MLPPolicyConfig] = MLPPolicyConfig,
    **model_keys: bool | str | int,
) -> Learner[Any]:
    torch.manual_seed(0)
    model = model_config(
        model_type="flow_policy" if model_config is FlowPolicyConfig else "mlp_policy",
        obs_dim=5,
        action_dim=DIM,
        num_action_chunks=CHUNK,
        hidden_dims=[16],
        add_q_head=True,
        normalize_obs=True,
        **model_keys,
    )
    actor = ActorConfig(
        model=model,
        optim=OptimConfig(lr=1e-2),
        global_batch_size=32,
        micro_batch_size=micro,
        seed=3,
        fsdp_config=FSDPConfig(sharding_strategy=sharding),
        critic_optim=AdamWConfig(lr=3e-3),
    )
    make_engine = partial(FSDPEngine.of, actor=actor, device=torch.device("cpu"), rank=rank, world_size=world_size)
    algorithm = EmbodiedAlgorithmConfig(
        adv_type=loss_type,
        loss_type=loss_type,
        update_epoch=updates,
        advantage=NoAdvantageConfig(),
        loss=loss,
    )
    cfg = RLinfConfig(algorithm=algorithm, actor=actor)
    return learners.get(loss.learner).build(get_model(model), make_engine, cfg=cfg)


def weights(learner: Learner[Any]) -> dict[Any, Any]:
    state = learner.engine.model.state_dict().items()
    whole = {name: (t.full_tensor() if hasattr(t, "full_tensor") else t).detach().clone() for name, t in state}
    temperature = learner.losses.temperature
    return whole if temperature is None else whole | {"temperature": temperature.raw.detach().clone()}


def train(learner: Learner[Any], first: int, last: int, rank: int = 0) -> dict[str, float]:
    for step in range(first, last + 1):
        learner.compute_advantages(make_trajectory(10 * step + rank))
        metrics = learner.update(step)
    return metrics


def assert_same(actual: dict[Any, Any], expected: dict[Any, Any], **tolerance: float) -> None:
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(actual[name], tensor, msg=name, **tolerance)


def changed(before: dict[Any, Any], after: dict[Any, Any], prefix: str | tuple[str, ...]) -> bool:
    return any(not torch.equal(before[name], after[name]) for name in before if name.startswith(prefix))
