"""Co-training: an optimizer step has the gradient of the policy loss, and of recorded frames with their weight."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.config.schema.algorithm import ActorLossConfig, EmbodiedAlgorithmConfig, GRPOConfig
from rlinf.config.schema.data import LeRobotDataConfig
from rlinf.config.schema.env import EnvSectionConfig
from rlinf.config.schema.root import EmbodiedConfig
from rlinf.config.schema.runner import RunnerConfig
from rlinf.config.schema.train import ActorConfig, FSDPConfig, OptimConfig
from rlinf.config.schema.vla import PiConfig
from rlinf.data.datasets.lerobot import LeRobotDataset
from rlinf.data.messages.embodied import Trajectory
from rlinf.hybrid_engines.train.fsdp import FSDPEngine
from rlinf.models import get_policy
from rlinf.workers.actor.learner import learners
from rlinf.workers.actor.policy_learner import PolicyLearner
from rlinf.workers.actor.supervised_frames import other_units
from tests.unit.data.frame_sets import frame_set
from toolkits.vla.make_tiny import TinyShape, write_tiny_pi

pytest.importorskip("transformers")
SHAPE = TinyShape(image_size=16, patch_size=8, action_dim=2, state_dim=2, num_bins=16, words=("task 0", "task 1"))
STEPS, ENVS = 2, 4
Gradients = dict[str, torch.Tensor]


def make_trajectory(learner: PolicyLearner) -> Trajectory:
    """Return a rollout of the learner's own policy, whose rewards differ within a group."""
    generator = torch.Generator().manual_seed(1)
    obs: dict[str, Any] = {
        "main_images": torch.randint(0, 256, (ENVS, 16, 16, 3), generator=generator, dtype=torch.uint8),
        "states": torch.rand(ENVS, 2, generator=generator),
        "task_descriptions": ["task 0", "task 1"] * 2,
    }
    with torch.no_grad():
        _, report = learner.policy.predict_action_batch(obs, mode="train", generator=generator)  # type: ignore[arg-type]
    none = torch.zeros(STEPS, ENVS, 2, dtype=torch.bool)
    return Trajectory(
        forward_inputs={name: torch.stack([tensor] * STEPS) for name, tensor in report.forward_inputs.items()},
        logprobs=torch.stack([report.logprobs] * STEPS),
        values=None,
        rewards=torch.arange(STEPS * ENVS * 2.0).view(STEPS, ENVS, 2),
        terminations=none,
        truncations=none,
        executed=~none,
        final_values=None,
        group_ids=torch.zeros(ENVS, dtype=torch.int64),
        env_ids=torch.arange(ENVS),
        versions=torch.zeros(STEPS, ENVS, dtype=torch.int64),
    )


def make_learner(tmp_path: Path, weight: float, *, frames: int | None = None, epochs: int = 1) -> PolicyLearner:
    model = PiConfig(
        model_type="openpi",
        model_path=str(tmp_path / "model"),
        variant="pi0",
        action_dim=2,
        state_dim=2,
        num_action_chunks=2,
        max_prompt_length=24,
        horizon=3,
        num_steps=2,
        noise_method="flow_sde",
    )
    if not (tmp_path / "model").exists():
        write_tiny_pi(tmp_path / "model", SHAPE, model)
        frame_set(tmp_path / "frames", scale=0.1)
    torch.manual_seed(0)
    actor = ActorConfig(
        model=model,
        optim=OptimConfig(lr=1e-3),
        global_batch_size=4,
        micro_batch_size=4,
        seed=3,
        sft_loss_weight=weight,
        sft_batch_size=frames,
        fsdp_config=FSDPConfig(sharding_strategy="no_shard"),
    )
    make_engine = partial(FSDPEngine.of, actor=actor, device=torch.device("cpu"), rank=0, world_size=1)
    algorithm = EmbodiedAlgorithmConfig(
        adv_type="grpo",
        loss_type="actor",
        group_size=4,
        update_epoch=epochs,
        advantage=GRPOConfig(),
        loss=ActorLossConfig(),
    )
    cfg = EmbodiedConfig(
        runner=RunnerConfig(),
        algorithm=algorithm,
        actor=actor,
        env=EnvSectionConfig(),
        data=LeRobotDataConfig(format="lerobot", path=str(tmp_path / "frames")) if weight else None,
    )
    learner = learners.get(algorithm.loss.learner).build(get_policy(model), make_engine, cfg=cfg)
    assert isinstance(learner, PolicyLearner)
    return learner


def gradients(learner: PolicyLearner, monkeypatch: pytest.MonkeyPatch, *, step: int = 1) -> list[Gradients]:
    """Return the gradient of each optimizer step of an update, none of which is made."""
    found: list[Gradients] = []

    def take(optimizer: str = "policy") -> dict[str, float]:
        named = learner.engine.model.named_parameters()
        found.append({name: p.grad.clone() for name, p in named if p.grad is not None})
        learner.engine.model.zero_grad()
        return {}

    monkeypatch.setattr(learner.engine, "step", take)
    learner.compute_advantages(make_trajectory(learner))
    learner.update(step)
    return found


def test_gradients_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both, alone = make_learner(tmp_path, 0.3), make_learner(tmp_path, 0.0)
    assert alone.frames is None
    together, policy = gradients(both, monkeypatch), gradients(alone, monkeypatch)
    assert both.frames is not None
    assert both.frames.batch_size == 4
    assert len(together) == len(policy) == 2
    for number, (sum_of_both, of_policy) in enumerate(zip(together, policy, strict=True)):
        both.frames.forward_backward(number)
        of_frames = {name: p.grad for name, p in both.engine.model.named_parameters() if p.grad is not None}
        assert any(gradient.abs().max() > 1e-3 for gradient in of_frames.values())
        assert any(gradient.abs().max() > 1e-3 for gradient in of_policy.values())
        for name, gradient in sum_of_both.items():
            expected = torch.zeros_like(gradient)
            expected += of_policy.get(name, 0.0)  # type: ignore[arg-type]
            expected += 0.3 * of_frames.get(name, 0.0)  # type: ignore[operator]
            torch.testing.assert_close(gradient, expected, atol=1e-6, rtol=1e-5, msg=name)
        both.engine.model.zero_grad()


def test_every_optimizer_step_has_new_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner(tmp_path, 0.3, frames=8, epochs=2)
    assert learner.frames is not None
    calls: list[Any] = []
    monkeypatch.setattr(
        learner.frames, "forward_backward", lambda number, *, weight: calls.append((number, weight)) or {}
    )
    for step in (1, 2):
        learner.compute_advantages(make_trajectory(learner))
        learner.update(step)
    assert calls == [(number, 0.3) for number in range(8)]
    assert learner.frames.batch_size == 8


def test_the_frames_loss_is_reported_without_its_weight(tmp_path: Path) -> None:
    learner = make_learner(tmp_path, 1e-9)
    learner.compute_advantages(make_trajectory(learner))
    metrics = learner.update(1)
    assert metrics["imitation_loss"] > 1e-2
    assert "actor_ratio" in metrics, sorted(metrics)


def test_data_in_other_units_than_the_statistics_are_named_with_their_numbers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    learner = make_learner(tmp_path, 0.5)
    assert not [record for record in caplog.records if "unnorm_key" in record.message]
    policy = learner.policy
    near, far = (LeRobotDataset(frame_set(tmp_path / name, scale=s)) for name, s in (("near", 0.1), ("far", 1.0)))
    (line,) = other_units(policy, [near, far])
    # Of 13 frames, numbered from 0, seven are more than five deviations from 0.
    assert line.startswith(f"actor.model.unnorm_key: of the actions in '{far.root}'")
    assert "0 (54%), 1 (54%). If they" in line
