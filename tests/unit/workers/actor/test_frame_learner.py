"""Fine-tuning of policies on frames: it learns, ranks share a batch, and updates are named by their number."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from data_toys import assert_same, losses_of_rank, make_rollout, weights

from rlinf.config.schema.algorithm import EmbodiedAlgorithmConfig, NoAdvantageConfig, SupervisedLossConfig
from rlinf.config.schema.data import AugmentationConfig, LeRobotDataConfig
from rlinf.config.schema.env import EnvSectionConfig
from rlinf.config.schema.root import EmbodiedConfig
from rlinf.config.schema.runner import RunnerConfig
from rlinf.config.schema.train import ActorConfig, FSDPConfig, OptimConfig
from rlinf.config.schema.vla import OpenVLAOFTConfig, PiConfig, RLTokenConfig, VLAConfig
from rlinf.errors import AlgorithmError
from rlinf.hybrid_engines.train.fsdp import FSDPEngine
from rlinf.models import get_policy
from rlinf.workers.actor.frame_learner import FrameLearner
from rlinf.workers.actor.learner import learners
from tests.unit.data.frame_sets import frame_set
from toolkits.vla.make_tiny import TinyShape, write_tiny, write_tiny_pi

pytest.importorskip("transformers")
SHAPE = TinyShape(image_size=16, patch_size=8, action_dim=2, state_dim=2, num_bins=16, words=("task 0", "task 1"))
KEYS: dict[str, Any] = {"action_dim": 2, "num_action_chunks": 2, "max_prompt_length": 24}
KINDS = ["pi0", "tokens", "l1"]
WEIGHTS = {"token": 0.0, "joint": 0.5}
"""Of a flow's own loss next to that of the token that is learned."""


def make_model(folder: Path, kind: str) -> VLAConfig:
    """Write a tiny model of random weights, unless it is there, and return its keys."""
    cfg: VLAConfig
    if kind in ("pi0", *WEIGHTS):
        sizes: dict[str, Any] = {"variant": "pi0", "state_dim": 2, "horizon": 3, "num_steps": 2}
        if kind in WEIGHTS:
            token = RLTokenConfig(vla_loss_weight=WEIGHTS[kind], num_heads=4, prefix_seq_len=32, mlp_ratio=2.0)
            sizes |= {"use_rlt": True, "rlt": token}
        cfg = PiConfig(model_type="openpi", model_path=str(folder), noise_method="flow_ode", **KEYS, **sizes)
        if not folder.exists():
            write_tiny_pi(folder, SHAPE, replace(cfg, use_rlt=False))
        return cfg
    cfg = OpenVLAOFTConfig(model_type="openvla_oft", model_path=str(folder), head=kind, **KEYS)
    if not folder.exists():
        write_tiny(folder, SHAPE, cfg)
    return cfg


def make_learner(tmp_path: Path, kind: str, *, rank: int = 0, world_size: int = 1, micro: int = 8) -> FrameLearner:
    """Return a learner of six updates a step from the frames of a small data set."""
    model, data = make_model(tmp_path / kind, kind), tmp_path / "frames"
    if not data.exists():
        frame_set(data, scale=0.1)
    torch.manual_seed(0)
    actor = ActorConfig(
        model=model,
        optim=OptimConfig(lr=3e-3),
        global_batch_size=16,
        micro_batch_size=micro,
        seed=3,
        fsdp_config=FSDPConfig(sharding_strategy="no_shard"),
    )
    make_engine = partial(FSDPEngine.of, actor=actor, device=torch.device("cpu"), rank=rank, world_size=world_size)
    loss = SupervisedLossConfig()
    algorithm = EmbodiedAlgorithmConfig(
        adv_type="none", loss_type="none", update_epoch=6, advantage=NoAdvantageConfig(), loss=loss
    )
    changes = AugmentationConfig(brightness=0.2)
    cfg = EmbodiedConfig(
        runner=RunnerConfig(task_type="offline"),
        algorithm=algorithm,
        actor=actor,
        env=EnvSectionConfig(),
        data=LeRobotDataConfig(format="lerobot", path=str(data), augmentation=changes),
    )
    learner = learners.get(loss.learner).build(get_policy(model), make_engine, cfg=cfg)
    assert isinstance(learner, FrameLearner)
    return learner


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_falls(kind: str, tmp_path: Path) -> None:
    learner = make_learner(tmp_path, kind)
    losses = [learner.update(step)["imitation_loss"] for step in range(1, 9)]
    assert losses[-1] < 0.75 * losses[0], losses
    assert learner.update(9)["frames"] == 13


@pytest.mark.parametrize("kind", WEIGHTS)
def test_a_token_is_learned_by_reconstruction(kind: str, tmp_path: Path) -> None:
    learner = make_learner(tmp_path, kind)
    before = weights(learner)
    records = [learner.update(step) for step in range(1, 6)]
    losses = [record["reconstruction_loss"] for record in records]
    assert losses[-1] < 0.5 * losses[0], losses
    assert ("imitation_loss" in records[0]) == (kind == "joint")
    after = weights(learner)
    changed = {name for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    assert {name for name in after if name.startswith("rlt_module.")} <= changed
    assert any(not name.startswith("rlt_module.") for name in changed) == (kind == "joint")


@pytest.mark.parametrize("kind", [*KINDS, *WEIGHTS])
def test_micro_batches_and_ranks_share_one_loss(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (whole,) = losses_of_rank(make_learner(tmp_path, kind, micro=16), 4, 0, 1, monkeypatch)
    (parts,) = losses_of_rank(make_learner(tmp_path, kind, micro=4), 4, 0, 1, monkeypatch)
    assert parts == pytest.approx(whole, rel=1e-5)
    ranks = [losses_of_rank(make_learner(tmp_path, kind), 4, rank, 2, monkeypatch)[0] for rank in range(2)]
    assert sum(ranks) / 2 == pytest.approx(whole, rel=1e-5)


@pytest.mark.parametrize("kind", ["pi0", "token"])
def test_a_resumed_learner_makes_the_same_updates(kind: str, tmp_path: Path) -> None:
    learner = make_learner(tmp_path, kind)
    learner.update(1)
    learner.save(tmp_path / "saved")
    expected = learner.update(2)
    again = make_learner(tmp_path, kind)
    again.load(tmp_path / "saved")
    assert again.update(2) == expected
    assert_same(weights(again), weights(learner), atol=0, rtol=0)


def test_rollouts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AlgorithmError, match="task_type=offline"):
        make_learner(tmp_path, "pi0").compute_advantages(make_rollout())


def test_steps_go_on_with_the_numbers_of_updates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, numbers = make_learner(tmp_path, "pi0"), list[int]()
    monkeypatch.setattr(learner, "update_once", lambda number: numbers.append(number) or {})
    learner.update(1)
    learner.update(2)
    assert numbers == list(range(12))
