"""Implicit Q-learning from images: the losses of the shifted images, and both encoders learn from them."""

from __future__ import annotations

import copy
from functools import partial

import torch
from data_toys import DIM

from rlinf.config.schema.algorithm import EmbodiedAlgorithmConfig, IQLLossConfig, NoAdvantageConfig
from rlinf.config.schema.data import DataConfig
from rlinf.config.schema.model import CNNPolicyConfig
from rlinf.config.schema.root import RLinfConfig
from rlinf.config.schema.train import ActorConfig, FSDPConfig, OptimConfig
from rlinf.data.datasets.episodes import Episode
from rlinf.hybrid_engines.train.fsdp import FSDPEngine
from rlinf.models import get_model
from rlinf.models.control.iql_policy import IQLPolicy
from rlinf.workers.actor.iql_learner import IQLLearner

LOSS = IQLLossConfig(tau=0.1, gamma=0.9, expectile=0.8)
SIZE = 32


def make_learner(random_shift: int = 0) -> IQLLearner:
    torch.manual_seed(0)
    model = CNNPolicyConfig(
        model_type="cnn_policy",
        obs_dim=2,
        action_dim=DIM,
        image_size=[SIZE, SIZE],
        hidden_dims=[16],
        latent_dim=8,
        add_q_head=True,
        add_value_head=True,
        random_shift=random_shift,
    )
    actor = ActorConfig(
        model=model,
        optim=OptimConfig(lr=1e-2),
        global_batch_size=8,
        micro_batch_size=8,
        seed=3,
        fsdp_config=FSDPConfig(sharding_strategy="no_shard"),
    )
    make_engine = partial(FSDPEngine.of, actor=actor, device=torch.device("cpu"), rank=0, world_size=1)
    algorithm = EmbodiedAlgorithmConfig(
        adv_type="none", loss_type="none", update_epoch=1, advantage=NoAdvantageConfig(), loss=LOSS
    )
    learner = IQLLearner.build(get_model(model), make_engine, cfg=RLinfConfig(algorithm=algorithm, actor=actor))
    learner.take_data(make_episodes(), DataConfig(format="memory", path="memory"))
    return learner


def make_episodes() -> list[Episode]:
    generator = torch.Generator().manual_seed(0)
    return [
        Episode(
            obs={
                "states": torch.randn(n + 1, 2, generator=generator),
                "main_images": torch.randint(0, 256, (n + 1, SIZE, SIZE, 3), generator=generator, dtype=torch.uint8),
            },
            actions=torch.rand(n, DIM, generator=generator) - 0.5,
            rewards=torch.randn(n, generator=generator),
            terminated=n % 2 == 0,
        )
        for n in (4, 5)
    ]


def test_losses_are_those_of_the_networks_on_the_images() -> None:
    learner = make_learner()
    policy = learner.engine.model
    assert isinstance(policy, IQLPolicy)
    frozen = copy.deepcopy(policy)
    batch = learner.stored.sample(8, torch.Generator().manual_seed(1))
    sums = learner.update_once(batch)
    with torch.no_grad():
        now, after = frozen.encoder(batch.inputs), frozen.encoder(batch.next_inputs)
        values, following = frozen.value_head(now).squeeze(-1), frozen.value_head(after).squeeze(-1)
        q = frozen.critic(now, batch.actions)
        targets = batch.rewards + LOSS.gamma * following * ~batch.terminated
        gap = frozen.target_critic(now, batch.actions).amin(-1) - values
        expected_value = torch.where(gap > 0, 0.8 * gap.square(), 0.2 * gap.square()).mean()
        expected_critic = (q - targets.unsqueeze(-1)).square().mean()
    assert torch.isclose(sums["value_loss"][0] / sums["value_loss"][1], expected_value, rtol=1e-4)
    assert torch.isclose(sums["critic_loss"][0] / sums["critic_loss"][1], expected_critic, rtol=1e-4)
    changed = [
        name for name, tensor in policy.state_dict().items() if not torch.equal(tensor, frozen.state_dict()[name])
    ]
    assert any(name.startswith("encoder.cameras.main_images.backbone") for name in changed)


def test_images_before_and_after_are_shifted_and_states_are_not() -> None:
    learner = make_learner(random_shift=2)
    batch = learner.stored.sample(8, torch.Generator().manual_seed(1))
    seen = learner.augment(batch, torch.Generator().manual_seed(2))
    for before, shifted in ((batch.inputs, seen.inputs), (batch.next_inputs, seen.next_inputs)):
        assert torch.equal(before["states"], shifted["states"])
        assert not torch.equal(before["main_images"], shifted["main_images"])
        for image, moved in zip(before["main_images"], shifted["main_images"], strict=True):
            # Away from the border an image is one of its own shifts.
            inner = moved[4:-4, 4:-4]
            shifts = [(i, j) for i in range(-2, 3) for j in range(-2, 3)]
            assert any(torch.equal(inner, image[4 + i : SIZE - 4 + i, 4 + j : SIZE - 4 + j]) for i, j in shifts)
    plain = make_learner()
    assert plain.augment(batch, torch.Generator().manual_seed(2)).inputs["main_images"] is batch.inputs["main_images"]
