"""A teacher of policies scores the actions that the policy took, and every token is credited with its own term."""

from __future__ import annotations

import copy
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.algorithms.minibatch import plan_micro_batches
from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.root import EmbodiedConfig
from rlinf.errors import CheckpointError
from rlinf.hybrid_engines.train.fsdp import FSDPEngine
from rlinf.models import get_policy
from rlinf.models.base_policy import BasePolicy
from rlinf.scheduler.probe import find_free_port
from rlinf.workers.actor.policy_learner import PolicyLearner
from tests.ranks import run_ranks
from tests.unit.workers.actor.test_policy_learner import CHUNK, DIM, ENVS, make_trajectory

LEVELS = ("token_level", "action_level", "chunk_level")
MODEL = (
    "actor.model.obs_dim=5",
    f"actor.model.action_dim={DIM}",
    f"+actor.model.num_action_chunks={CHUNK}",
    "actor.model.discrete=false",
    "actor.model.normalize_obs=false",
    "actor.global_batch_size=48",
    "actor.micro_batch_size=8",
    "env.train.max_steps_per_rollout_epoch=126",
    "env.eval.max_steps_per_rollout_epoch=501",
    "~algorithm.teacher.model",
)


def config(folder: Path, *keys: str) -> EmbodiedConfig:
    recipe = load_recipe("gym_cartpole_opd_mlp", [*MODEL, f"algorithm.teacher.ckpt_path={folder}/teacher.pt", *keys])
    cfg = validate_cfg(recipe)
    assert isinstance(cfg, EmbodiedConfig)
    return cfg


def save_teacher(folder: Path) -> BasePolicy:
    """Write a teacher of random weights, far from those of the policy, and return it in double precision."""
    (folder / "teacher.pt").touch()
    torch.manual_seed(7)
    teacher = get_policy(config(folder).actor.model)
    torch.save(teacher.state_dict(), folder / "teacher.pt")
    return copy.deepcopy(teacher)


def make_learner(folder: Path, *keys: str, rank: int = 0, world_size: int = 1) -> PolicyLearner:
    cfg = config(folder, *keys)
    torch.manual_seed(0)
    engine = FSDPEngine(
        get_policy(cfg.actor.model),
        optim=cfg.actor.optim,
        fsdp=cfg.actor.fsdp_config,
        precision="fp32",
        device=torch.device("cpu"),
        rank=rank,
        world_size=world_size,
    )
    learner = PolicyLearner(engine, cfg=cfg)
    share = ENVS // world_size
    batch = make_trajectory(torch.float32).envs(rank * share, (rank + 1) * share)
    learner.compute_advantages(replace(batch, values=None, final_values=None))
    return learner


def gradients(learner: PolicyLearner, rank: int = 0) -> dict[str, torch.Tensor]:
    (minibatch,) = learner.plan(step=1, epoch=0)
    plan = plan_micro_batches(minibatch, learner.ownership, rank=rank, micro_batch_size=8)
    learner.forward_backward(learner.samples, plan)
    found = {}
    for name, parameter in learner.policy.named_parameters():
        grad: Any = parameter.grad
        found[name] = (grad.full_tensor() if hasattr(grad, "full_tensor") else grad).clone()
    return found


def expected_gradients(folder: Path, teacher: BasePolicy, level: str) -> dict[str, torch.Tensor]:
    """Those of the definition: minus the mean of ratio times log q - log p over what was executed."""
    torch.manual_seed(0)
    policy = get_policy(config(folder).actor.model)
    batch = make_trajectory(torch.float32)
    inputs = {name: tensor.flatten(0, 1) for name, tensor in batch.forward_inputs.items()}
    executed, old = batch.executed.flatten(0, 1), batch.logprobs.flatten(0, 1)
    with torch.no_grad():
        gap = (teacher(forward_inputs=inputs).logprobs - old) * executed.unsqueeze(-1)
    log_ratio = (policy(forward_inputs=inputs).logprobs - old) * executed.unsqueeze(-1)
    if level == "token_level":
        count = int(executed.sum()) * DIM
    elif level == "action_level":
        gap, log_ratio, count = gap.sum(-1), log_ratio.sum(-1), int(executed.sum())
    else:
        gap, log_ratio, count = gap.sum((1, 2)), log_ratio.sum((1, 2)), int(executed.any(-1).sum())
    (-(log_ratio.exp() * gap).sum() / count).backward()
    return {name: parameter.grad for name, parameter in policy.named_parameters() if parameter.grad is not None}


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    scale = max(float(grad.abs().max()) for grad in expected.values())
    assert found.keys() == expected.keys()
    for name, grad in expected.items():
        assert float((found[name] - grad).abs().max()) <= 1e-5 * scale, name


@pytest.mark.parametrize("level", LEVELS)
def test_the_gradient_is_that_of_the_definition(tmp_path: Path, level: str) -> None:
    teacher = save_teacher(tmp_path)
    learner = make_learner(tmp_path, f"algorithm.logprob_type={level}")
    assert_same(gradients(learner), expected_gradients(tmp_path, teacher, level))


@pytest.mark.parametrize("reward_type", ["chunk_level", "action_level"])
def test_what_is_logged_is_the_divergence_of_chunks_or_actions(tmp_path: Path, reward_type: str) -> None:
    teacher = save_teacher(tmp_path)
    learner = make_learner(tmp_path, f"algorithm.reward_type={reward_type}")
    batch = make_trajectory(torch.float32)
    metrics = learner.compute_advantages(replace(batch, values=None, final_values=None))
    inputs = {name: tensor.flatten(0, 1) for name, tensor in batch.forward_inputs.items()}
    with torch.no_grad():
        gap = batch.logprobs.flatten(0, 1) - teacher(forward_inputs=inputs).logprobs
    executed = batch.executed.flatten(0, 1)
    total = (gap * executed.unsqueeze(-1)).sum()
    count = executed.sum() if reward_type == "action_level" else executed.any(-1).sum()
    assert metrics["kl_reward"] == pytest.approx(float(total / count), rel=1e-4)
    assert metrics["advantage"] == pytest.approx(-float(total / count), rel=1e-4)


def test_a_teacher_takes_the_place_of_the_initial_policy_in_the_penalty(tmp_path: Path) -> None:
    teacher = save_teacher(tmp_path)
    keys = ("algorithm.adv_type=raw", "algorithm.loss_type=actor", "+algorithm.kl_beta=0.1")
    learner = make_learner(tmp_path, *keys, "algorithm.logprob_type=chunk_level")
    assert learner.samples is not None
    with torch.no_grad():
        expected = teacher(forward_inputs=learner.samples.forward_inputs).logprobs
    torch.testing.assert_close(learner.samples.ref_logprobs, expected)
    assert not learner.engine.remembered


def test_updates_move_the_policy_to_a_teacher_that_stays(tmp_path: Path) -> None:
    save_teacher(tmp_path)
    learner = make_learner(tmp_path, "actor.optim.lr=0.03")
    assert learner.teacher is not None
    before = [tensor.clone() for _, tensor in learner.teacher.engine.export_weights()]
    batch = make_trajectory(torch.float32)
    batch = replace(batch, values=None, final_values=None, executed=torch.ones_like(batch.executed))
    states, divergences = batch.forward_inputs["states"], []
    torch.manual_seed(0)
    for step in range(1, 41):
        _, output = learner.policy.predict_action_batch({"states": states.flatten(0, 1)}, mode="train")
        inputs = {name: tensor.view(-1, ENVS, *tensor.shape[1:]) for name, tensor in output.forward_inputs.items()}
        own = output.logprobs.view(-1, ENVS, CHUNK, DIM)
        divergences.append(learner.compute_advantages(replace(batch, forward_inputs=inputs, logprobs=own))["kl_reward"])
        learner.update(step)
    assert sum(divergences[-5:]) < 0.3 * sum(divergences[:5])
    after = [tensor for _, tensor in learner.teacher.engine.export_weights()]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def run_rank(rank: int, port: int, folder: Path, results: Path) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    learner = make_learner(folder, "actor.fsdp_config.sharding_strategy=full_shard", rank=rank, world_size=2)
    found = gradients(learner, rank)
    if rank == 0:
        torch.save(found, results)


@pytest.mark.timeout(240)
def test_two_ranks_share_the_teacher(tmp_path: Path) -> None:
    teacher = save_teacher(tmp_path)
    run_ranks(run_rank, find_free_port(), tmp_path, tmp_path / "found.pt")
    assert_same(torch.load(tmp_path / "found.pt"), expected_gradients(tmp_path, teacher, "token_level"))


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    save_teacher(tmp_path)
    with pytest.raises(CheckpointError, match=r"teacher\.pt"):
        make_learner(tmp_path, "actor.model.hidden_dims=[16]")
