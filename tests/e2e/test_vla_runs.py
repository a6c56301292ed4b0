"""A tiny OpenVLA-OFT in the embodied loop: it acts on images and a sentence, and its rollouts train it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rlinf.config.schema.vla import OpenVLAOFTConfig
from tests.e2e.conftest import read_metrics
from toolkits.vla.make_tiny import TinyShape, write_tiny

pytest.importorskip("transformers")
pytestmark = pytest.mark.timeout(300)
RECIPE = "pixel_reach_grpo_oft_tiny"
SMALL = (
    "runner.max_epochs=2",
    "runner.val_check_interval=2",
    "env.train.total_num_envs=8",
    "env.train.max_steps_per_rollout_epoch=10",
    "env.train.max_episode_steps=10",
    "env.eval.total_num_envs=4",
    "env.eval.max_steps_per_rollout_epoch=10",
    "env.eval.max_episode_steps=10",
    "actor.global_batch_size=16",
    "actor.micro_batch_size=8",
)
GRPO = ("env.train.group_size=4", "algorithm.group_size=4")
PPO = (
    "env.train.group_size=1",
    "algorithm.group_size=1",
    "algorithm.adv_type=gae",
    "algorithm.loss_type=actor_critic",
    "actor.model.add_value_head=true",
    "actor.model.is_lora=true",
    "actor.model.lora_rank=4",
)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of random weights for the environment's images, actions and words."""
    folder = tmp_path_factory.mktemp("tiny_oft")
    cfg = OpenVLAOFTConfig(model_type="openvla_oft", model_path="", action_dim=2, num_action_chunks=5)
    shape = TinyShape(image_size=32, patch_size=8, action_dim=2, num_bins=32, words=("reach the green disc",))
    write_tiny(folder, shape, cfg)
    return folder


@pytest.mark.parametrize("overrides", [GRPO, PPO], ids=["grpo", "ppo of adapters"])
def test_a_run_learns_from_ratios_that_start_at_one(
    train: Callable[..., Path], model_folder: Path, overrides: tuple[str, ...]
) -> None:
    if "actor.model.is_lora=true" in overrides:
        pytest.importorskip("peft")
    folder = train(RECIPE, *SMALL, *overrides, f"actor.model.model_path={model_folder}", "env.train.image_size=32")
    records = read_metrics(folder)
    assert [record["step"] for record in records] == [0, 1, 2]
    first = records[1]
    assert first["train/actor_ratio"] == pytest.approx(1.0, abs=1e-4)
    assert abs(first["train/actor_approx_kl"]) < 1e-5
    assert first["train/grad_norm"] > 0
    assert records[2] != first
