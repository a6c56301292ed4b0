"""``cnn_policy`` under the off-policy learner: augmented images, an encoder that the critics train, any sharding."""

from functools import partial
from typing import Any

import pytest
import torch

from rlinf.config.schema.algorithm import EmbodiedAlgorithmConfig, NoAdvantageConfig, SACLossConfig
from rlinf.config.schema.model import CNNPolicyConfig
from rlinf.config.schema.root import RLinfConfig
from rlinf.config.schema.train import ActorConfig, FSDPConfig, OptimConfig
from rlinf.data.messages.embodied import Trajectory
from rlinf.hybrid_engines.train.fsdp import FSDPEngine
from rlinf.models import get_model
from rlinf.workers.actor.learner import learners

STEPS, ENVS = 5, 4


def trajectory() -> Trajectory:
    generator = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    def seen() -> dict[str, torch.Tensor]:
        images = torch.randint(0, 256, (STEPS, ENVS, 16, 16, 3), dtype=torch.uint8, generator=generator)
        return {"states": normal(STEPS, ENVS, 3), "main_images": images}

    flags = torch.zeros(STEPS, ENVS, 1, dtype=torch.bool)
    return Trajectory(
        forward_inputs=seen() | {"action": normal(STEPS, ENVS, 1, 2).tanh()},
        logprobs=normal(STEPS, ENVS, 1, 2),
        values=None,
        rewards=normal(STEPS, ENVS, 1),
        terminations=flags,
        truncations=flags,
        executed=~flags,
        final_values=None,
        group_ids=torch.arange(ENVS),
        env_ids=torch.arange(ENVS),
        versions=torch.zeros(STEPS, ENVS, dtype=torch.int64),
        next_inputs=seen(),
    )


def trained(sharding: str = "no_shard", micro: int = 8, random_shift: int = 2) -> dict[str, Any]:
    torch.manual_seed(0)
    model = CNNPolicyConfig(
        model_type="cnn_policy",
        image_size=[16, 16],
        obs_dim=3,
        action_dim=2,
        latent_dim=8,
        hidden_dims=[16],
        normalize_obs=True,
        add_q_head=True,
        random_shift=random_shift,
    )
    actor = ActorConfig(
        model=model,
        optim=OptimConfig(lr=1e-2),
        global_batch_size=8,
        micro_batch_size=micro,
        seed=3,
        fsdp_config=FSDPConfig(sharding_strategy=sharding),
    )
    make_engine = partial(FSDPEngine.of, actor=actor, device=torch.device("cpu"), rank=0, world_size=1)
    algorithm = EmbodiedAlgorithmConfig(
        adv_type="embodied_sac",
        loss_type="embodied_sac",
        update_epoch=3,
        advantage=NoAdvantageConfig(),
        loss=SACLossConfig(),
    )
    cfg = RLinfConfig(algorithm=algorithm, actor=actor)
    learner = learners.get(cfg.learner).build(get_model(model), make_engine, cfg=cfg)
    learner.compute_advantages(trajectory())
    learner.update(1)
    state = learner.engine.model.state_dict()
    assert learner.replay.sample(1, torch.Generator().manual_seed(0)).inputs["main_images"].dtype == torch.uint8
    return {name: (t.full_tensor() if hasattr(t, "full_tensor") else t).detach().clone() for name, t in state.items()}


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    return trained()


@pytest.mark.parametrize("keys", [{"micro": 2}, {"sharding": "full_shard"}], ids=["micro_batches", "sharded"])
def test_weights_do_not_depend_on_micro_batches_or_sharding(
    expected: dict[str, Any], keys: dict[str, int | str]
) -> None:
    for name, tensor in trained(**keys).items():
        torch.testing.assert_close(tensor, expected[name], atol=2e-4, rtol=1e-3, msg=name)


def test_training_sees_shifted_images(expected: dict[str, Any]) -> None:
    assert any(not torch.equal(tensor, expected[name]) for name, tensor in trained(random_shift=0).items())
