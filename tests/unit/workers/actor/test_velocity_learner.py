"""Updates by velocities: against the policy that acted, the same for any micro-batch size and ranks, repeatable."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.algorithms.minibatch import plan_micro_batches
from rlinf.config.schema.algorithm import EmbodiedAlgorithmConfig, GAEConfig, GRPOConfig, NFTLossConfig
from rlinf.config.schema.model import FlowPolicyConfig
from rlinf.config.schema.root import RLinfConfig
from rlinf.config.schema.train import ActorConfig, FSDPConfig, OptimConfig
from rlinf.config.schema.vla import PiConfig
from rlinf.data.messages.embodied import PolicyOutput, Trajectory
from rlinf.hybrid_engines.train.fsdp import FSDPEngine
from rlinf.models import get_model, get_policy
from rlinf.models.base_policy import ForwardType
from rlinf.models.trainable import TrainableModel
from rlinf.scheduler.probe import find_free_port
from rlinf.workers.actor.learner import Learner, learners
from tests.ranks import run_ranks
from toolkits.vla.make_tiny import TinyShape, write_tiny_pi

STEPS, ENVS, CHUNK, DIM = 4, 8, 3, 2
LOSS = NFTLossConfig(nft_beta=0.5, adv_clip_max=2.0)
MODEL = FlowPolicyConfig(
    model_type="flow_policy",
    obs_dim=5,
    action_dim=DIM,
    num_action_chunks=CHUNK,
    hidden_dims=[16],
    noise_method="flow_ode",
    add_value_head=True,
    normalize_obs=True,
)


@pytest.mark.parametrize("keys", [{}, {"is_lora": True, "lora_rank": 2}], ids=["whole", "adapters"])
def test_only_what_is_trained_is_remembered(keys: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    sizes: dict[str, Any] = {"variant": "pi0", "action_dim": DIM, "state_dim": DIM, "num_action_chunks": CHUNK}
    model = PiConfig(model_type="openpi", model_path=str(tmp_path), horizon=4, max_prompt_length=16, **sizes, **keys)
    write_tiny_pi(tmp_path, TinyShape(image_size=16, patch_size=8, action_dim=DIM, state_dim=DIM), model)
    actor = ActorConfig(model=model, optim=OptimConfig(lr=1e-2), global_batch_size=16, micro_batch_size=16)

    def make_engine(policy: TrainableModel) -> FSDPEngine:
        fsdp = FSDPConfig(sharding_strategy="no_shard")
        return FSDPEngine(
            policy, optim=actor.optim, fsdp=fsdp, precision="fp32", device=torch.device("cpu"), rank=0, world_size=1
        )

    algorithm = EmbodiedAlgorithmConfig(
        adv_type="gae", loss_type="nft", advantage=GAEConfig(), loss=LOSS, update_epoch=2
    )
    cfg = RLinfConfig(algorithm=algorithm, actor=actor)
    learner = learners.get("velocity").build(get_policy(model, on_meta=True), make_engine, cfg=cfg)
    learner.take_acting_weights()
    policy = learner.engine.model
    frozen = sum(parameter.numel() for parameter in policy.parameters() if not parameter.requires_grad)
    whole = sum(tensor.numel() for tensor in (*policy.parameters(), *policy.buffers()))
    (kept,) = learner.engine.remembered.values()
    assert sum(tensor.numel() for tensor in kept) == whole - frozen
    assert bool(frozen) == bool(keys)


def one_chunk(report: PolicyOutput, reward: torch.Tensor) -> Trajectory:
    """Return episodes of one chunk each, of one group, with rewards [N] of their first actions."""
    count = len(reward)
    flags = torch.zeros(1, count, CHUNK, dtype=torch.bool)
    rewards = torch.zeros(1, count, CHUNK)
    rewards[..., 0] = reward
    return Trajectory(
        forward_inputs={name: rows.unsqueeze(0) for name, rows in report.forward_inputs.items()},
        logprobs=report.logprobs.unsqueeze(0),
        values=None,
        rewards=rewards,
        terminations=flags,
        truncations=torch.ones_like(flags),
        executed=~flags,
        final_values=None,
        group_ids=torch.zeros(count, dtype=torch.int64),
        env_ids=torch.arange(count),
        versions=torch.zeros(1, count, dtype=torch.int64),
    )


@pytest.mark.parametrize(("noise_method", "sign"), [("flow_ode", 1), ("flow_ode", -1), ("flow_sde", 1)])
def test_velocities_of_a_vla_move_to_the_better_actions(noise_method: Any, sign: int, tmp_path: Path) -> None:
    """Of one observation's actions those with a large first number are rewarded, or punished."""
    pytest.importorskip("transformers")
    sizes: dict[str, Any] = {"variant": "pi0", "action_dim": DIM, "state_dim": DIM, "num_action_chunks": CHUNK}
    keys: dict[str, Any] = {"horizon": 4, "num_steps": 3, "max_prompt_length": 16, "noise_method": noise_method}
    model = PiConfig(model_type="openpi", model_path=str(tmp_path), **keys, **sizes)
    write_tiny_pi(tmp_path, TinyShape(image_size=16, patch_size=8, action_dim=DIM, state_dim=DIM), model)
    actor = ActorConfig(model=model, optim=OptimConfig(lr=1e-3), global_batch_size=32, micro_batch_size=16)

    def make_engine(policy: TrainableModel) -> FSDPEngine:
        return FSDPEngine(
            policy,
            optim=actor.optim,
            fsdp=FSDPConfig(sharding_strategy="no_shard"),
            precision="fp32",
            device=torch.device("cpu"),
            rank=0,
            world_size=1,
        )

    algorithm = EmbodiedAlgorithmConfig(
        adv_type="grpo", loss_type="embodied_nft", update_epoch=8, advantage=GRPOConfig(), loss=LOSS
    )
    cfg = RLinfConfig(algorithm=algorithm, actor=actor)
    learner = learners.get(LOSS.learner).build(get_policy(model, on_meta=True), make_engine, cfg=cfg)
    policy, count = learner.engine.model, 32
    generator = torch.Generator().manual_seed(0)
    image = torch.randint(0, 255, (1, 16, 16, 3), dtype=torch.uint8, generator=generator)
    obs = {
        "main_images": image.expand(count, -1, -1, -1),
        "states": torch.zeros(count, DIM),
        "task_descriptions": ["reach"] * count,
    }

    def act() -> tuple[torch.Tensor, Any]:
        found: tuple[torch.Tensor, Any] = policy.predict_action_batch(
            obs, mode="train", generator=torch.Generator().manual_seed(1)
        )
        return found

    before, report = act()
    learner.compute_advantages(one_chunk(report, sign * before[:, 0, 0]))
    metrics = learner.update(1)
    assert metrics["nft_velocity_change"] > 0
    change = float((act()[0] - before)[..., 0].mean())
    assert sign * change > 0.01, change


def make_trajectory() -> Trajectory:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    truncations = torch.zeros(STEPS, ENVS, CHUNK, dtype=torch.bool)
    executed = ~truncations
    truncations[2, 1, 1] = True
    executed[2, 1, 2:] = executed[3, 7] = False
    return Trajectory(
        forward_inputs={"states": normal(STEPS, ENVS, 5), "action": normal(STEPS, ENVS, CHUNK, DIM)},
        logprobs=torch.zeros(STEPS, ENVS, CHUNK, DIM),
        values=normal(STEPS + 1, ENVS, 1),
        rewards=normal(STEPS, ENVS, CHUNK),
        terminations=torch.zeros_like(truncations),
        truncations=truncations,
        executed=executed,
        final_values=normal(STEPS, ENVS, 1),
        group_ids=torch.arange(ENVS) // 4,
        env_ids=torch.arange(ENVS),
        versions=torch.zeros(STEPS, ENVS, dtype=torch.int64),
    )


def make_learner(
    micro: int = 16, sharding: str = "no_shard", rank: int = 0, world_size: int = 1, epochs: int = 2
) -> Learner[Any]:
    torch.manual_seed(0)
    actor = ActorConfig(model=MODEL, optim=OptimConfig(lr=1e-2), global_batch_size=16, micro_batch_size=micro, seed=3)

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
        adv_type="gae", loss_type="embodied_nft", update_epoch=epochs, advantage=GAEConfig(), loss=LOSS
    )
    cfg = RLinfConfig(algorithm=algorithm, actor=actor)
    learner = learners.get(LOSS.learner).build(get_model(MODEL), make_engine, cfg=cfg)
    share = ENVS // world_size
    learner.compute_advantages(make_trajectory().envs(rank * share, (rank + 1) * share))
    return learner


def weights(learner: Learner[Any]) -> dict[Any, Any]:
    state = learner.engine.model.state_dict().items()
    return {name: (t.full_tensor() if hasattr(t, "full_tensor") else t).detach().clone() for name, t in state}


def trained(**keys: int | str) -> tuple[dict[str, Any], dict[str, float]]:
    learner = make_learner(**keys)
    metrics = learner.update(1)
    return weights(learner), metrics


def assert_same(actual: dict[Any, Any], expected: dict[Any, Any], **tolerance: float) -> None:
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(actual[name], tensor, msg=name, **tolerance)


def velocities(learner: Learner[Any]) -> torch.Tensor:
    """Return what the model says of all samples."""
    mixture = {"noise": learner.noise, "time": learner.time}
    with torch.no_grad():
        evaluation = learner.engine.model(
            ForwardType.VELOCITY, forward_inputs=learner.samples.forward_inputs, **mixture
        )
    found: torch.Tensor = evaluation.velocity
    return found


def test_old_velocities_are_those_of_the_policy_that_acted() -> None:
    learner = make_learner()
    learner.plan(step=1, epoch=0)
    torch.testing.assert_close(learner.old_velocity, velocities(learner))
    learner.take_acting_weights()
    before = weights(learner)
    with torch.no_grad():
        for parameter in learner.engine.model.parameters():
            parameter.add_(0.1)
    after = weights(learner)
    learner.plan(step=1, epoch=1)
    assert_same(weights(learner), after, atol=0, rtol=0)
    assert (learner.old_velocity - velocities(learner)).abs().min() > 1e-3
    learner.engine.model.load_state_dict(before)
    torch.testing.assert_close(learner.old_velocity, velocities(learner))


@pytest.mark.parametrize("epochs", [1, 2])
def test_each_update_compares_with_the_weights_that_it_begins_with(epochs: int) -> None:
    learner = make_learner(epochs=epochs)
    for step in (1, 2):
        before = weights(learner)
        assert learner.update(step)["nft_velocity_change"] > 0
        assert bool(learner.engine.remembered) == (epochs > 1)
        for kept in learner.engine.remembered.values():
            model = learner.engine.model
            names = [name for name, _ in (*model.named_parameters(), *model.named_buffers())]
            assert_same(dict(zip(names, kept, strict=True)), {name: before[name] for name in names}, atol=0, rtol=0)
        learner.compute_advantages(make_trajectory())


def test_noise_is_new_in_every_epoch_and_the_same_in_every_run() -> None:
    def draws(step: int, epoch: int) -> Any:
        learner = make_learner()
        learner.take_acting_weights()
        learner.plan(step=step, epoch=epoch)
        assert learner.noise.shape == (STEPS * ENVS, CHUNK, DIM)
        assert ((learner.time >= 0) & (learner.time < 1)).all()
        return learner.noise

    assert torch.equal(draws(1, 0), draws(1, 0))
    assert not torch.equal(draws(1, 0), draws(1, 1))
    assert not torch.equal(draws(1, 0), draws(2, 0))


def test_updates_do_not_depend_on_the_micro_batch_size() -> None:
    expected, _ = trained()
    for micro in (1, 5):
        assert_same(trained(micro=micro)[0], expected, atol=2e-4, rtol=1e-3)


def test_only_actions_that_were_executed_count() -> None:
    learner = make_learner()
    minibatch = torch.arange(STEPS * ENVS)
    learner.plan(step=1, epoch=0)
    plan = plan_micro_batches(minibatch, learner.ownership, rank=0, micro_batch_size=16)
    sums = learner.forward_backward(learner.samples, plan)
    executed = int(learner.samples.action_mask.sum())
    assert float(sums["nft_reward"][1]) == executed * DIM


def run_rank(rank: int, port: int, folder: Path) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    results = {
        sharding: trained(micro=4, sharding=sharding, rank=rank, world_size=2)
        for sharding in ("no_shard", "full_shard")
    }
    torch.save(results, folder / f"rank{rank}.pt")


@pytest.mark.timeout(240)
def test_two_ranks_learn_what_one_learns_under_any_sharding(tmp_path: Path) -> None:
    run_ranks(run_rank, find_free_port(), tmp_path)
    expected, metrics = trained()
    for rank in (0, 1):
        for actual, others in torch.load(tmp_path / f"rank{rank}.pt", weights_only=False).values():
            assert_same(actual, expected, atol=2e-4, rtol=1e-3)
            assert others == pytest.approx(metrics, rel=1e-3, abs=1e-5)


def test_noise_and_times_belong_to_samples_wherever_they_lie() -> None:
    learner = make_learner()
    learner.plan(step=1, epoch=0)
    noise, time = learner.noise, learner.time
    learner.samples = dataclasses.replace(learner.samples, ids=learner.samples.ids.flip(0))
    learner.plan(step=1, epoch=0)
    assert torch.equal(learner.noise, noise.flip(0))
    assert torch.equal(learner.time, time.flip(0))
