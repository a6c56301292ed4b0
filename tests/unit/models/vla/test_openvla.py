"""``openvla`` computes what the published code does, and one pass over all tokens is the token-by-token rollout."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import torch

from rlinf.config.schema.vla import OpenVLAConfig
from rlinf.models import check_policy
from rlinf.models.vla.openvla import OpenVLAPolicy
from rlinf.models.vla.prismatic import PrismaticShape
from tests.unit.models.vla.vla_policies import as_openvla, golden, observations, published_names, random_policy

pytest.importorskip("transformers")


@torch.no_grad()
def test_tokens_logits_and_actions_are_the_published_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = golden("openvla", tmp_path)
    policy, expected = as_openvla(case.policy), case.expected
    monkeypatch.setattr(policy.inputs, "record", lambda obs, device: case.record)
    actions, report = policy.predict_action_batch({}, mode="eval")
    chosen = report.forward_inputs["action"]
    assert torch.equal(policy.tokens.to_ids(chosen)[0], expected["tokens"])
    torch.testing.assert_close(actions[0, 0].double(), expected["actions"], rtol=0, atol=2e-7)
    logits = expected["action_logits"].flip(-1)
    hidden = hidden_states(policy, case.record, chosen)
    torch.testing.assert_close(policy.all_logits(hidden), logits, rtol=0, atol=1e-5)
    ours = policy.language_model.lm_head(hidden).max(-1).values
    torch.testing.assert_close(ours, expected["best_logits"], rtol=0, atol=1e-5)
    logprobs = logits.log_softmax(-1).gather(-1, chosen.long().view(1, 7, 1)).view(1, 1, 7)
    torch.testing.assert_close(report.logprobs, logprobs, rtol=0, atol=1e-5)


def hidden_states(policy: Any, record: dict[str, torch.Tensor], bins: torch.Tensor) -> torch.Tensor:
    """Return the hidden states [1, A, W] of the training pass."""
    found: list[torch.Tensor] = []
    hook = policy.language_model.model.register_forward_hook(lambda *call: found.append(call[2].last_hidden_state))
    policy(forward_inputs={**record, "action": bins})
    hook.remove()
    return found[0][:, -7:]


def test_the_full_size_model_has_the_published_names() -> None:
    published = published_names("openvla_7b.txt")
    towers = ["vit_large_patch14_reg4_dinov2.lvd142m", "vit_so400m_patch14_siglip_224"]
    text = {"model_type": "llama", "vocab_size": 32064, "pad_token_id": 32000, "torch_dtype": "bfloat16"}
    config = {"timm_model_ids": towers, "image_sizes": [224, 224], "text_config": text, "pad_to_multiple_of": 64}
    cfg, no_inputs = OpenVLAConfig(model_type="openvla", model_path="", action_dim=7), cast(Any, None)
    with torch.device("meta"):
        policy = OpenVLAPolicy(cfg, PrismaticShape.of_config(config), no_inputs, num_values=1)
    assert {name: tuple(tensor.shape) for name, tensor in policy.state_dict().items()} == published


@pytest.mark.parametrize("keys", [{}, {"temperature": 0.7, "top_k": 3}], ids=["all", "top-k"])
def test_the_rules_of_policies_are_kept(keys: dict[str, Any], tmp_path: Path) -> None:
    check_policy(random_policy("openvla", tmp_path, add_value_head=True, **keys), observations())


@pytest.mark.parametrize("keys", [{}, {"temperature": 0.7, "top_k": 3}], ids=["all", "top-k"])
def test_one_pass_recomputes_the_rollout(keys: dict[str, Any], tmp_path: Path) -> None:
    policy = random_policy("openvla", tmp_path, add_value_head=True, value_hidden_dims=[8], **keys)
    with torch.no_grad():
        list(policy.parameters())[-2].normal_()
    generator = torch.Generator().manual_seed(1)
    actions, report = policy.predict_action_batch(observations(), mode="train", generator=generator)
    again = policy(forward_inputs=report.forward_inputs)
    torch.testing.assert_close(again.logprobs, report.logprobs, rtol=0, atol=1e-5)
    torch.testing.assert_close(again.values, report.values, rtol=0, atol=1e-5)
    torch.testing.assert_close(policy.predict_values(observations()), report.values, rtol=0, atol=1e-5)
    assert report.values.std() > 0
    inputs = policy.forward_inputs_of(observations(), actions)
    assert torch.equal(inputs["action"], report.forward_inputs["action"].clamp(max=30))


def test_a_number_depends_on_those_before_it(tmp_path: Path) -> None:
    policy = random_policy("openvla", tmp_path)
    inputs = policy.predict_action_batch(observations(), mode="eval")[1].forward_inputs
    before = policy(forward_inputs=inputs).logprobs
    changed = inputs["action"].clone()
    changed[:, 0, 1] = (changed[:, 0, 1] + 7) % 32
    after = policy(forward_inputs=inputs | {"action": changed}).logprobs
    assert torch.equal(before[..., 0], after[..., 0])
    assert not torch.isclose(before[..., 1], after[..., 1]).any()
    assert not torch.isclose(before[..., 2], after[..., 2]).any()
