"""Policies of which good actions are requested: by which words, and how far they go beyond it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.config.schema.vla import GuidanceConfig
from rlinf.data.messages.embodied import Observation
from rlinf.models.vla.flow_vla import FlowVLAPolicy
from rlinf.models.vla.guidance import conditional_frames, conditioned, led, requesting
from tests.unit.models.vla.gr00t_policies import gr00t_policy
from tests.unit.models.vla.pi_policies import pi_policy, write_pi
from tests.unit.models.vla.smolvla_policies import smolvla_policy
from tests.unit.models.vla.test_openpi import obs_of
from tests.unit.models.vla.vla_policies import TASKS
from toolkits.vla.make_tiny import TinyShape, write_tokenizer

pytest.importorskip("transformers")
both = pytest.mark.parametrize("variant", ["pi0", "pi05"])
WORDS = (*TASKS, "Advantage: positive", "Advantage: negative")


def policy_of(folder: Path, variant: str, **guidance: Any) -> FlowVLAPolicy:
    """Return a policy that knows the words, without noise in its steps."""
    if not folder.exists():
        write_pi(folder, variant)
        write_tokenizer(folder, TinyShape(words=WORDS))
    keys: dict[str, Any] = {"noise_method": "flow_ode", "max_prompt_length": 48}
    return pi_policy(folder, variant, guidance=GuidanceConfig(**guidance), **keys)


def said(obs: Observation, word: str) -> Observation:
    """Return observations whose sentences have the word."""
    return {**obs, "task_descriptions": [f"{task}\nAdvantage: {word}" for task in obs["task_descriptions"]]}


def greedy(policy: FlowVLAPolicy, obs: Observation) -> torch.Tensor:
    """Return the actions of evaluation."""
    return policy.predict_action_batch(obs, mode="eval")[0]


def test_frames_are_learned_by_their_labels_as_the_keys_say() -> None:
    positive = torch.tensor([True, True, False, False])
    draws = torch.tensor([0.05, 0.1, 0.05, 0.9])
    table = {
        (True, 0.1): [False, True, False, False],
        (False, 0.1): [False, True, False, True],
        (True, 0.0): [True, True, False, False],
        (False, 1.0): [False, False, False, False],
    }
    for (positive_only, share), expected in table.items():
        cfg = GuidanceConfig(unconditional_prob=share, positive_only_conditional=positive_only)
        assert conditional_frames(positive, draws, cfg).tolist() == expected


def test_sentences_are_those_of_published_checkpoints() -> None:
    assert conditioned("close the door", True) == "close the door\nAdvantage: positive"
    assert conditioned("close the door", False) == "close the door\nAdvantage: negative"
    obs: Observation = {"task_descriptions": ["a", "b"], "states": torch.zeros(2, 1)}
    assert requesting(obs, GuidanceConfig()) is obs
    assert requesting(obs, GuidanceConfig(type="positive"))["task_descriptions"] == [
        "a\nAdvantage: positive",
        "b\nAdvantage: positive",
    ]
    assert requesting(obs, GuidanceConfig(type="negative"))["task_descriptions"][0] == "a\nAdvantage: negative"


def test_velocities_are_led_from_the_usual_one_through_the_one_that_is_requested() -> None:
    both_kinds = torch.tensor([[3.0], [5.0], [1.0], [2.0]])
    assert led(both_kinds, 0.0).tolist() == [[1.0], [2.0]]
    assert led(both_kinds, 1.0).tolist() == [[3.0], [5.0]]
    assert led(both_kinds, 2.0).tolist() == [[5.0], [8.0]]


@both
@pytest.mark.parametrize("word", ["positive", "negative"])
@torch.no_grad()
def test_at_scale_one_good_actions_are_requested_and_nothing_else(variant: str, word: str, tmp_path: Path) -> None:
    plain, guided = policy_of(tmp_path / "pi", variant), policy_of(tmp_path / "pi", variant, type=word)
    expected = greedy(plain, said(obs_of(), word))
    assert torch.equal(greedy(guided, obs_of()), expected)
    assert (greedy(plain, obs_of()) - expected).abs().max() > 1e-3
    report = guided.predict_action_batch(obs_of(), mode="eval")[1]
    assert torch.equal(
        report.forward_inputs["token_ids"], guided.inputs.record(said(obs_of(), word), guided.device)["token_ids"]
    )
    assert not guided.compares


@both
@torch.no_grad()
def test_other_scales_compare_with_the_task_alone_in_every_step(variant: str, tmp_path: Path) -> None:
    plain = policy_of(tmp_path / "pi", variant)
    without = policy_of(tmp_path / "pi", variant, type="positive", scale=0.0)
    torch.testing.assert_close(greedy(without, obs_of()), greedy(plain, obs_of()), rtol=0, atol=1e-5)
    beyond = policy_of(tmp_path / "pi", variant, type="positive", scale=2.5)
    assert beyond.compares
    records = [plain.inputs.record(obs, plain.device) for obs in (said(obs_of(), "positive"), obs_of())]
    prefixes, state = [plain.prefix(record) for record in records], records[1]["state"]
    x, steps = torch.zeros(3, 1, 6, 8), plain.cfg.num_steps
    for time in plain._times(plain.device).split(1):
        conditional, usual = (
            plain.velocity(prefix, record["state"], x, time) for prefix, record in zip(prefixes, records, strict=True)
        )
        x = x - (usual + 2.5 * (conditional - usual)) / steps
    expected = plain.inputs.actions.restore(x[:, 0, :2, :3])
    torch.testing.assert_close(greedy(beyond, obs_of()), expected, rtol=0, atol=1e-4)
    start = torch.zeros(3, 6, 8)
    torch.testing.assert_close(beyond.actions_from(obs_of(), start), expected, rtol=0, atol=1e-4)
    assert (greedy(beyond, obs_of()) - greedy(plain, obs_of())).abs().max() > 1e-3
    assert len(state) == 3


@torch.no_grad()
def test_training_sees_the_sentences_that_it_is_given(tmp_path: Path) -> None:
    guided, plain = policy_of(tmp_path / "pi", "pi0", type="positive"), policy_of(tmp_path / "pi", "pi0")
    actions = torch.zeros(3, 6, 3)
    ids = [policy.forward_inputs_of(obs_of(), actions)["token_ids"] for policy in (guided, plain)]
    assert torch.equal(*ids)


@pytest.mark.parametrize("build", [smolvla_policy, gr00t_policy])
@torch.no_grad()
def test_other_flows_compare_likewise(build: Any, tmp_path: Path) -> None:
    plain = build(tmp_path, noise_method="flow_ode")
    without = build(tmp_path, noise_method="flow_ode", guidance=GuidanceConfig(type="positive", scale=0.0))
    torch.testing.assert_close(greedy(without, obs_of()), greedy(plain, obs_of()), rtol=0, atol=1e-4)
