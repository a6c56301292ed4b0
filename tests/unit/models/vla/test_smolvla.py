"""``smolvla`` computes what LeRobot's code does; rollout and training have the same log-probabilities."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load_file, save_file

from rlinf.config.schema.vla import SmolVLAConfig
from rlinf.data.messages.embodied import Observation
from rlinf.errors import ConfigError
from rlinf.models import check_policy, get_policy
from rlinf.models.vla import smolvla
from rlinf.models.vla.published_folder import write_published
from rlinf.models.vla.smolvla_model import SmolVLAShape
from tests.unit.models.vla.smolvla_policies import CONFIG, golden_record, published, smolvla_policy, write_smolvla
from tests.unit.models.vla.vla_policies import observations, published_names

pytest.importorskip("transformers")
CAMERAS = ["camera0", "camera1"]


def obs_of() -> Observation:
    """Return three observations with states of three numbers."""
    return observations() | {"states": torch.tensor([[0.1, -0.2, 0.3], [0.5, 0.9, -0.4], [-2.0, 0.0, 0.7]])}


@torch.no_grad()
def test_sampled_actions_are_the_published_ones(tmp_path: Path) -> None:
    policy = smolvla_policy(tmp_path, image_keys=CAMERAS)
    record, expected = golden_record()
    chain, _ = policy.sample(policy.prefix(record), record["state"], expected["noise"], None)
    torch.testing.assert_close(chain[:, -1], expected["sampled"], rtol=0, atol=1e-5)


@torch.no_grad()
def test_the_velocity_is_the_published_one(tmp_path: Path) -> None:
    policy = smolvla_policy(tmp_path, image_keys=CAMERAS)
    record, expected = golden_record()
    noise, actions, time = expected["noise"], expected["actions"], expected["time"]
    x = time[:, None, None] * noise + (1 - time[:, None, None]) * actions
    prefix = policy.prefix(record)
    # Both times side by side; each sample has one of them.
    both = policy.velocity(prefix, record["state"], x.unsqueeze(1).expand(-1, 2, -1, -1), time)
    velocity = both[torch.arange(2), torch.arange(2)]
    torch.testing.assert_close((noise - actions - velocity).square(), expected["loss"], rtol=1e-5, atol=1e-5)


def test_rollout_and_training_have_the_same_log_probabilities(tmp_path: Path) -> None:
    policy = smolvla_policy(tmp_path, add_value_head=True)
    check_policy(policy, obs_of(), num_action_chunks=2)
    _, report = policy.predict_action_batch(obs_of(), mode="train", generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        evaluated = policy.default_forward(report.forward_inputs)
    torch.testing.assert_close(evaluated.logprobs, report.logprobs, rtol=0, atol=1e-5)
    assert report.logprobs.abs().max() > 0


def test_images_words_and_states_all_matter(tmp_path: Path) -> None:
    policy, obs = smolvla_policy(tmp_path), obs_of()
    actions = policy.predict_action_batch(obs, mode="eval")[0]
    changes: dict[str, Any] = {
        "main_images": obs["main_images"].flip(1),
        "task_descriptions": ["reach the red disc"] * 3,
        "states": -obs["states"],
    }
    for name, value in changes.items():
        assert not torch.allclose(actions, policy.predict_action_batch(obs | {name: value}, mode="eval")[0]), name


def test_prompts_end_their_line(tmp_path: Path) -> None:
    policy = smolvla_policy(tmp_path)
    seen: list[str] = []
    tokenizer = policy.inputs._tokenizer
    policy.inputs._tokenizer = lambda text: seen.append(text) or tokenizer(text)
    policy.inputs.encode(["reach the disc", "reach the disc\n"], torch.zeros(2, 3))
    assert seen == ["reach the disc\n"] * 2


def test_states_and_actions_have_the_units_of_the_checkpoint(tmp_path: Path) -> None:
    policy = smolvla_policy(tmp_path)
    state = policy.inputs.record(obs_of(), policy.device)["state"]
    expected = (obs_of()["states"] - torch.tensor([0.1, 0.2, 0.3])) / torch.tensor([1.0, 2.0, 0.5])
    torch.testing.assert_close(state[:, :3], expected, rtol=0, atol=1e-5)
    assert state.shape == (3, 8)


def test_names_and_shapes_are_the_published_ones(tmp_path: Path) -> None:
    ours = {f"model.{name}": list(tensor.shape) for name, tensor in smolvla_policy(tmp_path).state_dict().items()}
    shapes = published()["shapes"]
    assert ours.items() <= shapes.items()
    assert shapes.keys() - ours.keys() == {f"model.{name}" for name in smolvla.UNUSED}


def test_the_full_size_model_has_the_published_names(tmp_path: Path) -> None:
    names = published_names("smolvla_450m.txt")
    full = {
        "text_config": {
            "model_type": "llama",
            "hidden_size": 960,
            "intermediate_size": 2560,
            "num_attention_heads": 15,
            "num_key_value_heads": 5,
            "vocab_size": 49280,
        },
        "vision_config": {
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "image_size": 512,
            "patch_size": 16,
        },
        "scale_factor": 4,
    }
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "smolvlm", **full}))
    config = CONFIG | {"num_vlm_layers": 16, "max_action_dim": 32, "max_state_dim": 32}
    cfg, no_inputs = SmolVLAConfig(model_type="smolvla", model_path="", action_dim=7), cast(Any, None)
    with torch.device("meta"):
        policy = smolvla.SmolVLAPolicy(cfg, SmolVLAShape.of_config(config, tmp_path), no_inputs)
    ours = {f"model.{name}": tuple(tensor.shape) for name, tensor in policy.state_dict().items()}
    assert ours.items() <= names.items()
    assert names.keys() - ours.keys() == {f"model.{name}" for name in smolvla.UNUSED}


def test_a_folder_is_written_back_bit_for_bit(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    policy = smolvla_policy(source)
    write_published(target, policy, policy.export(lambda tensor: tensor), source=source)
    assert (source / "model.safetensors").read_bytes() == (target / "model.safetensors").read_bytes()
    again = smolvla_policy(target)
    actions = [p.predict_action_batch(obs_of(), mode="eval")[0] for p in (policy, again)]
    assert torch.equal(*actions)


def test_statistics_among_the_weights_are_read(tmp_path: Path) -> None:
    write_smolvla(tmp_path)
    (tmp_path / "policy_preprocessor_step_5_normalizer_processor.safetensors").unlink()
    tensors = load_file(tmp_path / "model.safetensors")
    for part, entry in (("normalize_inputs", "observation_state"), ("unnormalize_outputs.so100", "action")):
        tensors[f"{part}.buffer_{entry}.mean"] = torch.tensor([1.0, 2.0, 3.0])
        tensors[f"{part}.buffer_{entry}.std"] = torch.ones(3)
    tensors["normalize_targets.buffer_action.mean"] = tensors["unnormalize_outputs.so100.buffer_action.mean"].clone()
    save_file(tensors, tmp_path / "model.safetensors")
    policy = smolvla_policy(tmp_path)
    assert policy.inputs.actions.low.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"type": "act"}, "is not that of smolvla: ValueError: type act"),
        ({"attention_mode": "self_attn"}, "attention_mode self_attn"),
        ({"num_expert_layers": 2}, "num_expert_layers 2"),
        ({"add_image_special_tokens": True}, "add_image_special_tokens"),
        ({"vlm_model_name": "nowhere"}, "actor.model.vlm_path: there is no folder 'nowhere'"),
        ({"max_action_dim": 2}, "the model predicts 2 numbers"),
    ],
)
def test_what_was_not_published_is_refused(
    change: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    write_smolvla(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | change))
    with pytest.raises(ConfigError, match=words):
        smolvla_policy(tmp_path)


def test_parts_are_frozen_and_adapted(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    policy = smolvla_policy(tmp_path, freeze=["vision", "projector", "language"])
    trained = {name.split(".")[1] for name, p in policy.named_parameters() if p.requires_grad}
    assert "lm_expert" in trained
    assert "vlm" not in trained
    adapted = smolvla_policy(tmp_path, is_lora=True, lora_rank=2)
    plain = get_policy(policy.cfg).predict_action_batch(obs_of(), mode="eval")[0]
    assert torch.equal(adapted.predict_action_batch(obs_of(), mode="eval")[0], plain)
    assert set(dict(adapted.export(lambda tensor: tensor))) == set(policy.state_dict())
