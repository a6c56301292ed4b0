"""Tiny OpenVLA-OFT and pi-0.5 in the embodied loop act on images and a sentence, and their rollouts train them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.vla import OpenVLAOFTConfig, PiConfig
from rlinf.hybrid_engines.train.state import load_weights
from rlinf.models import get_policy
from tests.e2e.conftest import read_metrics
from tests.unit.data.frame_sets import frame_set
from toolkits.vla import export_policy
from toolkits.vla.make_tiny import TinyShape, write_tiny, write_tiny_gr00t, write_tiny_pi, write_tiny_smolvla

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
UNUSED = "vision_backbone.fused_featurizer.attn_pool.q.weight"
"""Published, and of no use to policies."""
IMAGES = ("env.train.image_size=32",)
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
# What is trained reaches rollouts as patches, and each of two actor ranks owns a share of it.
SHARED = (
    "weight_syncer.type=patch",
    "cluster.cpu_slots_per_node=2",
    "cluster.component_placement={actor: 0-1, env: 0, rollout: 0}",
)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of random weights for the environment's images, actions and words."""
    folder = tmp_path_factory.mktemp("tiny_oft")
    cfg = OpenVLAOFTConfig(model_type="openvla_oft", model_path="", action_dim=2, num_action_chunks=5)
    shape = TinyShape(image_size=32, patch_size=8, action_dim=2, num_bins=32, words=("reach the green disc",))
    write_tiny(folder, shape, cfg)
    return folder


@pytest.mark.parametrize(
    "overrides", [GRPO, PPO, (*PPO, *SHARED)], ids=["grpo", "ppo of adapters", "ppo of adapters by two ranks"]
)
def test_a_run_learns_from_ratios_that_start_at_one(
    train: Callable[..., Path], model_folder: Path, overrides: tuple[str, ...]
) -> None:
    if "actor.model.is_lora=true" in overrides:
        pytest.importorskip("peft")
    check_metrics(train(RECIPE, *SMALL, *overrides, f"actor.model.model_path={model_folder}", *IMAGES))


def test_a_flow_learns_from_ratios_that_start_at_one_and_is_evaluated_in_real_time(
    train: Callable[..., Path], tmp_path: Path
) -> None:
    cfg = PiConfig(model_type="openpi", model_path="", variant="pi05", action_dim=2, state_dim=2, horizon=6)
    shape = TinyShape(image_size=32, patch_size=8, action_dim=2, state_dim=2, words=("reach the green disc",))
    write_tiny_pi(tmp_path, shape, cfg)
    keys = (f"actor.model.model_path={tmp_path}", "actor.model.variant=pi05", "actor.model.norm_scheme=quantiles")
    keys += ("+actor.model.real_time_chunking.enabled=true", "env.eval.auto_reset=false")
    folder = train("pixel_reach_ppo_openpi_tiny", *SMALL, *keys, *IMAGES, "algorithm.update_epoch=1")
    check_metrics(folder)
    assert all(0 < record["eval/episode_len"] <= 10 for record in read_metrics(folder)[::2])


@pytest.mark.parametrize(("model", "write"), [("smolvla", write_tiny_smolvla), ("gr00t", write_tiny_gr00t)])
def test_a_flow_that_looks_across_learns_from_ratios_that_start_at_one(
    model: str, write: Callable[[Path, TinyShape], None], train: Callable[..., Path], tmp_path: Path
) -> None:
    shape = TinyShape(image_size=32, patch_size=8, action_dim=2, state_dim=2, words=("reach the green disc",))
    write(tmp_path, shape)
    keys = (f"actor.model.model_path={tmp_path}", "algorithm.update_epoch=1")
    check_metrics(train(f"pixel_reach_ppo_{model}_tiny", *SMALL, *IMAGES, *keys))


def test_a_frozen_flow_is_steered(train: Callable[..., Path], tmp_path: Path) -> None:
    cfg = PiConfig(model_type="openpi", model_path="", variant="pi0", action_dim=2, state_dim=2, horizon=2)
    shape = TinyShape(image_size=32, patch_size=8, action_dim=2, state_dim=2, words=("reach the green disc",))
    write_tiny_pi(tmp_path / "model", shape, cfg)
    keys = (*IMAGES, f"actor.model.model_path={tmp_path / 'model'}", "actor.model.noise_policy.image_size=16")
    keys += ("algorithm.update_epoch=3", "algorithm.replay_buffer.min_buffer_size=80", "runner.save_interval=2")
    folder = train("pixel_reach_dsrl_openpi_tiny", *SMALL, *keys)
    records = read_metrics(folder)
    assert [record["train/replay_size"] for record in records[1:]] == [80, 160]
    assert all(records[2][f"train/{name}_grad_norm"] > 0 for name in ("critic", "policy"))
    policy = get_policy(validate_cfg(load_recipe("pixel_reach_dsrl_openpi_tiny", keys)).actor.model)
    before = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    load_weights(folder / "checkpoints" / "global_step_2", policy)
    changed = {name for name, tensor in policy.state_dict().items() if not torch.equal(tensor, before[name])}
    assert not {name for name in changed if name.startswith("flow.")}
    published = load_file(tmp_path / "model" / "model.safetensors")["action_out_proj.weight"]
    assert torch.equal(policy.state_dict()["flow.action_out_proj.weight"], published)
    learned = {name for name, p in policy.named_parameters() if p.requires_grad}
    assert {name.split(".")[0] for name in changed} >= {"encoder", "policy_head", "critic", "target_critic"}
    assert {name.split(".")[0] for name in learned} == {"encoder", "policy_head", "critic"}


def test_actions_of_a_frozen_flow_are_refined(train: Callable[..., Path], tmp_path: Path) -> None:
    cfg = PiConfig(model_type="openpi", model_path="", variant="pi0", action_dim=2, state_dim=2, horizon=2)
    shape = TinyShape(image_size=32, patch_size=8, action_dim=2, state_dim=2, words=("reach the green disc",))
    write_tiny_pi(tmp_path / "model", shape, cfg)
    keys = (*IMAGES, f"actor.model.model_path={tmp_path / 'model'}", "algorithm.update_epoch=4")
    folder = train("pixel_reach_rlt_openpi_tiny", *SMALL, *keys, "algorithm.replay_buffer.min_buffer_size=80")
    records = read_metrics(folder)
    assert [record["train/replay_size"] for record in records[1:]] == [80, 160]
    assert all(records[2][f"train/{name}_grad_norm"] > 0 for name in ("critic", "policy"))
    assert records[2]["train/proposal_distance"] > 0


def test_a_token_is_learned_written_and_seen_by_a_policy(
    train: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = PiConfig(model_type="openpi", model_path="", variant="pi0", action_dim=2, state_dim=2, horizon=2)
    words = ("reach the green disc", "task 0", "task 1")
    shape = TinyShape(image_size=32, patch_size=8, action_dim=2, state_dim=2, words=words)
    base, written, recipe = tmp_path / "model", tmp_path / "with_token", "pixel_reach_rlt_stage1_sft_openpi_tiny"
    write_tiny_pi(base, shape, cfg)
    frames = frame_set(tmp_path / "frames", scale=0.1)
    keys = [f"actor.model.model_path={base}", f"data.path={frames}", "algorithm.update_epoch=4"]
    keys += ["actor.global_batch_size=8", "actor.micro_batch_size=4", "runner.max_epochs=2", "runner.save_interval=2"]
    folder = train(recipe, *keys)
    first, last = (record["train/reconstruction_loss"] for record in read_metrics(folder))
    assert last < first
    checkpoint = folder / "checkpoints" / "global_step_2"
    arguments = [recipe, "--checkpoint", str(checkpoint), "--out", str(written), *keys]
    monkeypatch.setattr(sys, "argv", ["export_policy.py", *arguments])
    export_policy.main()
    before, after = (load_file(place / "model.safetensors") for place in (base, written))
    assert before.keys() == after.keys()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    more = (f"actor.model.model_path={written}", "actor.model.use_rlt=true", "algorithm.update_epoch=2")
    more += ("actor.model.rlt={prefix_seq_len: 96, num_heads: 4}", "algorithm.replay_buffer.min_buffer_size=80")
    records = read_metrics(train("pixel_reach_rlt_openpi_tiny", *SMALL, *IMAGES, *more))
    assert records[2]["train/policy_grad_norm"] > 0


def test_a_flow_imitates_another_in_the_states_that_it_meets(train: Callable[..., Path], tmp_path: Path) -> None:
    cfg = PiConfig(model_type="openpi", model_path="", variant="pi0", action_dim=2, state_dim=2, horizon=6)
    shape = TinyShape(image_size=32, patch_size=8, action_dim=2, state_dim=2, words=("reach the green disc",))
    write_tiny_pi(tmp_path, shape, cfg)
    keys = (*SMALL, *IMAGES, f"actor.model.model_path={tmp_path}", "actor.model.add_value_head=false")
    keys += ("~actor.model.value_hidden_dims",)
    raw = ("algorithm.adv_type=raw", "algorithm.loss_type=actor", "~algorithm.gamma", "~algorithm.gae_lambda")
    expert = train("pixel_reach_ppo_openpi_tiny", *keys, *raw, "runner.save_interval=2", "actor.optim.lr=0.01")
    teacher = f"{{expert_type: policy, ckpt_path: {expert}/checkpoints/global_step_2}}"
    dagger = ("algorithm.adv_type=embodied_dagger", "algorithm.loss_type=embodied_dagger", *raw[2:])
    dagger += ("~algorithm.logprob_type", "algorithm.update_epoch=8", "+algorithm.imitation_loss=model")
    records = read_metrics(train("pixel_reach_ppo_openpi_tiny", *keys, *dagger, f"+algorithm.expert={teacher}"))
    assert [record["train/stored"] for record in records[1:]] == [16, 32]
    assert all(record["rollout/labelled"] == 1.0 for record in records[1:])
    assert records[2]["train/imitation_loss"] < records[1]["train/imitation_loss"]
    assert records[1]["rollout/expert_distance"] > 0


def check_metrics(folder: Path) -> None:
    """Check that the run's first update saw the very policy that acted, and changed it."""
    records = read_metrics(folder)
    assert [record["step"] for record in records] == [0, 1, 2]
    first = records[1]
    assert first["train/actor_ratio"] == pytest.approx(1.0, abs=1e-4)
    assert abs(first["train/actor_approx_kl"]) < 1e-5
    assert first["train/grad_norm"] > 0
    assert records[2] != first


def test_a_resumed_run_equals_an_undisturbed_one_and_is_published(
    train: Callable[..., Path], model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = f"actor.model.model_path={model_folder}"
    keys = (*SMALL, *GRPO, *IMAGES, model, "runner.save_interval=1", "runner.val_check_interval=-1")
    undisturbed = train(RECIPE, *keys, "runner.max_epochs=3")
    train(RECIPE, *keys, "runner.max_epochs=2", log_path=tmp_path)
    resumed = train(RECIPE, *keys, "runner.max_epochs=3", "runner.resume_dir=auto", log_path=tmp_path)
    assert read_metrics(resumed) == read_metrics(undisturbed)
    checkpoint, published = resumed / "checkpoints" / "global_step_3", tmp_path / "published"
    arguments = [RECIPE, "--checkpoint", str(checkpoint), "--out", str(published), "--precision", "fp32", model]
    monkeypatch.setattr(sys, "argv", ["export_policy.py", *arguments])
    export_policy.main()
    before, after = (load_file(folder / "model.safetensors") for folder in (model_folder, published))
    assert before.keys() == after.keys()
    changed = {name.split(".")[0] for name, tensor in before.items() if not torch.equal(tensor, after[name])}
    assert changed == {"vision_backbone", "projector", "language_model"}
    assert torch.equal(before[UNUSED], after[UNUSED])
