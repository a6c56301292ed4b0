"""``openvla_oft`` computes what the published code does, and rollout and training agree."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors import safe_open

from rlinf.config.schema.vla import OpenVLAOFTConfig
from rlinf.models import check_policy
from rlinf.models.vla import openvla_oft
from rlinf.models.vla.openvla import causal_mask
from rlinf.models.vla.prismatic import PrismaticShape
from tests.unit.models.vla.vla_policies import GOLDEN, as_oft, golden, observations, published_names, random_policy

pytest.importorskip("transformers")
KEYS: dict[str, dict[str, Any]] = {
    "tokens": {"temperature": 1.6, "top_k": 5},
    "numbers": {"head": "l1", "use_proprio": True, "state_dim": 2},
    "words": {"head": "l1", "use_film": True, "image_keys": ["main_images", "wrist_images"]},
}


@pytest.mark.parametrize("kind", ["oft_tokens", "oft_l1", "oft_film"])
@torch.no_grad()
def test_hidden_states_and_actions_are_the_published_ones(kind: str, tmp_path: Path) -> None:
    case = golden(kind, tmp_path)
    policy = as_oft(case.policy)
    hidden = policy.hidden_states(case.record)
    torch.testing.assert_close(hidden, case.expected["hidden"], rtol=0, atol=1e-5)
    distribution = policy.distribution(hidden)
    actions = policy.inputs.actions.restore(distribution.numbers(distribution.mode()))
    torch.testing.assert_close(actions[0].double(), case.expected["actions"], rtol=0, atol=2e-6)


def test_the_full_size_model_has_the_published_names() -> None:
    main, parts = published_names("openvla_7b.txt"), published_names("openvla_oft_7b_parts.txt")
    published = {name: shape for name, shape in main.items() if not name.startswith("vision_backbone.")} | parts
    # The published code wrote the fixture; its names at a tiny size are these, but for the numbers of blocks.
    with safe_open(GOLDEN / "oft_film.safetensors", "pt") as file:
        fixture = json.loads(file.metadata()["shapes"])
    tiny, full = ({re.sub(r"(blocks|layers)\.\d+", r"\1", name) for name in names} for names in (fixture, published))
    assert tiny == full
    towers = ["vit_large_patch14_reg4_dinov2.lvd142m", "vit_so400m_patch14_siglip_224"]
    text = {"model_type": "llama", "vocab_size": 32064, "pad_token_id": 32000, "torch_dtype": "bfloat16"}
    config = {"timm_model_ids": towers, "image_sizes": [224, 224], "text_config": text, "pad_to_multiple_of": 64}
    keys: dict[str, Any] = {"action_dim": 7, "state_dim": 8, "head": "l1", "use_proprio": True, "use_film": True}
    cfg = OpenVLAOFTConfig(model_type="openvla_oft", model_path="", num_action_chunks=8, **keys)
    with torch.device("meta"):
        policy = openvla_oft.OpenVLAOFTPolicy(cfg, PrismaticShape.of_config(config), cast(Any, None))
    ours = {name: tuple(tensor.shape) for name, tensor in policy.state_dict().items()}
    assert ours.pop("log_std") == (7,)
    assert ours == published


@torch.no_grad()
def test_a_causal_mask_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = golden("oft_tokens", tmp_path)
    monkeypatch.setattr(openvla_oft, "bidirectional_mask", causal_mask)
    hidden = as_oft(case.policy).hidden_states(case.record)
    assert (hidden - case.expected["hidden"]).abs().max() > 0.5


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_the_rules_of_policies_are_kept(keys: dict[str, Any], tmp_path: Path) -> None:
    check_policy(random_policy("oft", tmp_path, add_value_head=True, **keys), observations(), num_action_chunks=2)


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_training_recomputes_what_the_rollout_reported(keys: dict[str, Any], tmp_path: Path) -> None:
    policy = random_policy("oft", tmp_path, add_value_head=True, **keys)
    generator = torch.Generator().manual_seed(3)
    _, report = policy.predict_action_batch(observations(), mode="train", generator=generator)
    again = policy(forward_inputs=report.forward_inputs)
    torch.testing.assert_close(again.logprobs, report.logprobs, rtol=0, atol=1e-5)
    torch.testing.assert_close(again.values, report.values, rtol=0, atol=1e-5)
    assert torch.isfinite(again.entropy).all()


def test_a_row_is_what_it_is_alone_whatever_its_padding(tmp_path: Path) -> None:
    short, long = (random_policy("oft", tmp_path, max_prompt_length=length) for length in (24, 40))
    obs = observations()
    with torch.no_grad():
        batch = as_oft(short).hidden_states(short.inputs.record(obs, short.device))
        padded = as_oft(long).hidden_states(long.inputs.record(obs, long.device))
        row = {name: value[2:] for name, value in obs.items()}
        alone = as_oft(short).hidden_states(short.inputs.record(row, short.device))
    torch.testing.assert_close(padded, batch, rtol=0, atol=1e-5)
    torch.testing.assert_close(alone, batch[2:], rtol=0, atol=1e-5)


def test_images_words_and_states_all_matter(tmp_path: Path) -> None:
    policy = random_policy("oft", tmp_path, head="l1", use_proprio=True, state_dim=2)
    obs = observations()
    actions = policy.predict_action_batch(obs, mode="eval")[0]
    changes: dict[str, Any] = {
        "main_images": obs["main_images"].flip(1),
        "states": -obs["states"],
        "task_descriptions": ["reach the red disc"] * 3,
    }
    for name, value in changes.items():
        assert not torch.allclose(actions, policy.predict_action_batch(obs | {name: value}, mode="eval")[0]), name


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_recorded_actions_are_learned_from(keys: dict[str, Any], tmp_path: Path) -> None:
    policy = random_policy("oft", tmp_path, **keys)
    actions, report = policy.predict_action_batch(observations(), mode="train", generator=torch.Generator())
    inputs = policy.forward_inputs_of(observations(), actions)
    assert inputs.keys() == report.forward_inputs.keys()
    expected = report.forward_inputs["action"]
    # Statistics end at -1 and 1, and the last token has no number of its own.
    expected = expected.clamp(-1, 1) if "head" in keys else expected.clamp(0, 30)
    torch.testing.assert_close(inputs["action"], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["openvla", "oft"])
def test_recorded_tokens_have_the_cross_entropy_of_the_logits(kind: str, tmp_path: Path) -> None:
    policy = random_policy(kind, tmp_path, temperature=1.6, top_k=5)
    # Far from what the policy itself would choose.
    actions = torch.linspace(-1, 1, 3 * policy.cfg.num_action_chunks * 3).view(3, -1, 3)
    inputs = policy.forward_inputs_of(observations(), actions)
    logits = policy.action_logits(inputs)
    expected = -logits.log_softmax(-1).gather(-1, inputs["action"].long().unsqueeze(-1)).squeeze(-1)
    losses = policy.supervised_forward(inputs)
    torch.testing.assert_close(losses, expected)
    # As losses that imitate see them: at the temperature, among all tokens.
    hot = (logits / 1.6).log_softmax(-1).gather(-1, inputs["action"].long().unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(policy(forward_inputs=inputs).logprobs, hot)
    losses.sum().backward()
    assert torch.isfinite(losses).all()
    assert policy.language_model.lm_head.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("kind", ["openvla", "oft"])
def test_a_token_that_leaves_the_most_likely_ones_is_still_learned_from(kind: str, tmp_path: Path) -> None:
    policy = random_policy(kind, tmp_path, top_k=2)
    generator = torch.Generator().manual_seed(3)
    _, report = policy.predict_action_batch(observations(), mode="train", generator=generator)
    inputs = report.forward_inputs
    assert torch.equal(inputs["kept_bins"], policy.action_logits(inputs).topk(2, -1).indices.to(torch.int16))
    with torch.no_grad():
        policy.language_model.lm_head.weight.neg_()
    logits = policy.action_logits(inputs)
    is_out = (logits.topk(2, -1).indices != inputs["action"].unsqueeze(-1)).all(-1)
    assert is_out.float().mean() > 0.9
    again = policy(forward_inputs=inputs)
    expected = logits.gather(-1, inputs["kept_bins"].long()).log_softmax(-1)
    place = (inputs["kept_bins"] == inputs["action"].unsqueeze(-1)).long().argmax(-1, keepdim=True)
    torch.testing.assert_close(again.logprobs, expected.gather(-1, place).squeeze(-1))
    again.logprobs.sum().backward()
    assert policy.language_model.lm_head.weight.grad.abs().sum() > 0


def test_gradients_reach_what_is_trained_and_nothing_else(tmp_path: Path) -> None:
    policy = random_policy("oft", tmp_path, add_value_head=True, freeze=["vision"], value_detach=True)
    _, report = policy.predict_action_batch(observations(), mode="train", generator=torch.Generator())
    result = policy(forward_inputs=report.forward_inputs)
    result.values.sum().backward()
    assert {name.split(".")[0] for name, p in policy.named_parameters() if p.grad is not None} == {"value_head"}
    result = policy(forward_inputs=report.forward_inputs)
    result.logprobs.sum().backward()
    without = {name.split(".")[0] for name, p in policy.named_parameters() if p.grad is None}
    assert without == {"vision_backbone"}


def test_no_module_drops_anything_in_training(tmp_path: Path) -> None:
    policy = random_policy("oft", tmp_path, head="l1", use_proprio=True, state_dim=2, use_film=True)
    inputs = policy.predict_action_batch(observations(), mode="train", generator=torch.Generator())[1].forward_inputs
    assert torch.equal(policy.train()(forward_inputs=inputs).logprobs, policy.eval()(forward_inputs=inputs).logprobs)
