"""Noise in the steps of a flow: rollout and training agree on it, and it is where and as large as the recipe says."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.data.messages.embodied import Observation, PolicyOutput
from rlinf.models import check_policy
from rlinf.models.draws import SlotGenerator
from rlinf.models.vla.flow_vla import FlowVLAPolicy
from rlinf.models.vla.step_noise import LearnedStepNoise
from tests.unit.models.vla.gr00t_policies import gr00t_policy
from tests.unit.models.vla.pi_policies import pi_policy
from tests.unit.models.vla.smolvla_policies import smolvla_policy
from tests.unit.models.vla.vla_policies import observations

pytest.importorskip("transformers")
LEARNED: dict[str, Any] = {"noise_method": "flow_noise", "noise_range": [0.05, 0.4]}
KINDS: dict[str, dict[str, Any]] = {
    "learned": LEARNED,
    "one": {"noise_steps": "one"},
    "one learned": LEARNED | {"noise_steps": "one"},
    "mean": {"chain_reduction": "mean"},
    "expert": {"value_input": "expert_mean"},
    "one, chunk": {"noise_steps": "one", "value_input": "expert_chunk_mean"},
}


def obs_of() -> Observation:
    """Return three observations with states of three numbers."""
    return observations() | {"states": torch.tensor([[0.1, -0.2, 0.3], [0.5, 0.9, -0.4], [-2.0, 0.0, 0.7]])}


def shaken(policy: FlowVLAPolicy) -> FlowVLAPolicy:
    """Return a policy whose heads are not at their first weights, which end in 0."""
    heads = [policy.value_head] + ([policy.noise.head] if isinstance(policy.noise, LearnedStepNoise) else [])
    generator = torch.Generator().manual_seed(3)
    for parameter in (parameter for head in heads if head is not None for parameter in head.parameters()):
        torch.nn.init.normal_(parameter, std=0.3, generator=generator)
    return policy


def act(policy: FlowVLAPolicy, seed: int = 5) -> PolicyOutput:
    return policy.predict_action_batch(obs_of(), mode="train", generator=torch.Generator().manual_seed(seed))[1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("build", [pi_policy, smolvla_policy, gr00t_policy])
def test_training_recomputes_what_the_rollout_reported(build: Any, kind: str, tmp_path: Path) -> None:
    variant = ("pi05",) if build is pi_policy else ()
    policy = shaken(build(tmp_path, *variant, add_value_head=True, **KINDS[kind]))
    check_policy(policy, obs_of(), num_action_chunks=2)
    report = act(policy)
    again = policy(forward_inputs=report.forward_inputs)
    torch.testing.assert_close(again.logprobs, report.logprobs, rtol=0, atol=2e-5)
    assert report.values is not None
    assert report.values.unique().numel() == 3
    torch.testing.assert_close(again.values, report.values, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(policy.predict_values(obs_of()), report.values, rtol=1e-5, atol=1e-5)
    again.logprobs.sum().backward()
    assert all(parameter.grad is not None for parameter in policy.noise.parameters())  # type: ignore[union-attr]


def test_learned_noise_lies_in_its_range_and_has_an_entropy_to_learn(tmp_path: Path) -> None:
    policy = pi_policy(tmp_path, "pi0", **LEARNED)
    report = act(policy)
    first = policy(forward_inputs=report.forward_inputs).entropy
    # New heads begin in the middle: the same deviation in all five steps.
    middle = 0.5 * (math.log(0.05) + math.log(0.4)) + 0.5 + 0.5 * math.log(2 * math.pi)
    torch.testing.assert_close(first, torch.full((3, 2, 3), 5 * middle))
    assert isinstance(policy.noise, LearnedStepNoise)
    assert policy.noise.head[0].weight.any()
    output, steps = torch.randn(3, 5, 6, 16) * 100, torch.arange(5)
    spread = shaken(policy).noise.log_stds(output, steps).detach().exp()  # type: ignore[union-attr]
    assert spread.shape == (3, 5, 2, 3)
    assert torch.equal(policy.noise.log_stds(output[:, :, :2], steps).exp(), spread)  # of what is executed
    assert 0.05 <= float(spread.min()) < 0.06
    assert 0.35 < float(spread.max()) <= 0.4001
    policy(forward_inputs=report.forward_inputs).entropy.sum().backward()
    assert policy.noise.head[-1].bias.grad.abs().min() > 0  # type: ignore[union-attr]


@torch.no_grad()
def test_learned_noise_goes_around_the_flows_own_steps(tmp_path: Path) -> None:
    policy = shaken(pi_policy(tmp_path, "pi0", **LEARNED))
    chain = act(policy).forward_inputs["chain"]
    record, prefix = policy.observe(obs_of())
    times = policy._times(policy.device)
    for step in range(5):
        begin = chain[:, step : step + 1]
        output = policy.expert_output(prefix, record["state"], begin, times[step : step + 1])
        straight = (begin - policy.velocity_of(output) / 5)[:, 0]
        away = (chain[:, step + 1] - straight).abs()
        assert away[:, 2:].max() < 1e-5
        assert away[:, :2, 3:].max() < 1e-5
        deviation = policy.noise.log_stds(output, torch.tensor([step]))[:, 0].exp()  # type: ignore[union-attr]
        assert (away[:, :2, :3] < 5 * deviation).all()
        assert away[:, :2, :3].mean() > 0.2 * deviation.mean()


@torch.no_grad()
def test_one_step_of_each_sample_is_noisy_and_recorded(tmp_path: Path) -> None:
    policy = pi_policy(tmp_path, "pi0", noise_steps="one")
    record, prefix = policy.observe(obs_of())
    start, ids = torch.randn(3, 6, 8, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 2, 4])
    chain, logprobs = policy.sample(prefix, record["state"], start, torch.Generator().manual_seed(2), step_ids=ids)
    for row, noisy in enumerate(ids.tolist()):
        for step in range(5):
            alone = policy.expert_output(
                prefix, record["state"], chain[:, step : step + 1], policy._times(policy.device)[step : step + 1]
            )
            calm = (chain[:, step] - policy.velocity_of(alone)[:, 0] / 5)[row]
            away = (chain[row, step + 1] - calm).abs()[:2, :3]
            assert (away > 1e-4).all() if step == noisy else (away < 1e-5).all()
    report = act(policy)
    assert report.forward_inputs["chain"].shape == (3, 2, 6, 8)
    # The log-probability is that of one draw, not of a sum.
    generator = torch.Generator().manual_seed(5)
    torch.randn(3, 6, 8, generator=generator)
    chosen = (torch.rand(3, generator=generator) * 5).long()
    assert torch.equal(report.forward_inputs["step_ids"], chosen)
    draws = torch.stack([torch.randn(3, 2, 3, generator=generator) for _ in range(5)], 1)
    for row, step in enumerate(chosen.tolist()):
        std = 0.5 * math.sqrt((1 - step / 5) / max(step / 5, 0.2) / 5)
        expected = -0.5 * draws[row, step] ** 2 - math.log(std) - 0.5 * math.log(2 * math.pi)
        torch.testing.assert_close(report.logprobs[row], expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_the_noisy_step_is_drawn_for_each_sample_and_may_leave_the_last_out(tmp_path: Path) -> None:
    counts = {}
    for ignore_last in (False, True):
        policy = pi_policy(tmp_path, "pi0", noise_steps="one", ignore_last=ignore_last)
        counts[ignore_last] = policy._draw_steps(5000, torch.Generator().manual_seed(0)).bincount(minlength=5)
    assert (counts[False] > 800).all()
    assert counts[True][4] == 0
    assert (counts[True][:4] > 1100).all()


@torch.no_grad()
def test_means_are_sums_over_the_steps_and_the_start(tmp_path: Path) -> None:
    whole, mean = (act(pi_policy(tmp_path, "pi0", chain_reduction=kind)) for kind in ("sum", "mean"))
    torch.testing.assert_close(mean.logprobs, whole.logprobs / 6)
    assert torch.equal(mean.forward_inputs["chain"], whole.forward_inputs["chain"])


@pytest.mark.parametrize("value_input", ["expert_mean", "expert_chunk_mean", "prefix_mean"])
def test_values_read_what_the_recipe_says_and_no_noise(value_input: Any, tmp_path: Path) -> None:
    policy = shaken(pi_policy(tmp_path, "pi0", add_value_head=True, value_input=value_input))
    with torch.no_grad():
        assert torch.equal(act(policy, 5).values, act(policy, 6).values)  # type: ignore[arg-type]
        record, prefix = policy.observe(obs_of())
        output = policy.expert_output(prefix, record["state"], torch.zeros(3, 1, 6, 8), torch.ones(1))[:, 0]
        seen = {"expert_mean": output.mean(1), "expert_chunk_mean": output[:, :2].mean(1), "prefix_mean": prefix.mean()}
        assert policy.value_head is not None
        torch.testing.assert_close(policy.predict_values(obs_of()), policy.value_head(seen[value_input]))
        longer = pi_policy(tmp_path, "pi0", add_value_head=True, value_input=value_input, max_prompt_length=45)
        torch.testing.assert_close(
            shaken(longer).predict_values(obs_of()), policy.predict_values(obs_of()), rtol=0, atol=1e-5
        )


@pytest.mark.parametrize("value_input", ["expert_mean", "prefix_mean"])
@pytest.mark.parametrize("detached", [False, True])
def test_gradients_of_values_stop_where_they_should(value_input: Any, detached: bool, tmp_path: Path) -> None:
    keys: dict[str, Any] = {"add_value_head": True, "value_input": value_input, "value_detach": detached}
    policy = shaken(pi_policy(tmp_path, "pi0", **keys))
    values = policy(forward_inputs=act(policy).forward_inputs).values
    assert values is not None
    values.sum().backward()
    assert policy.value_head is not None
    assert policy.value_head[0].weight.grad is not None
    expert = policy.paligemma_with_expert.expert.layers[0].mlp.down_proj.weight.grad
    language = policy.paligemma_with_expert.parts["language_model"].layers[0].mlp.down_proj.weight.grad
    assert (language is not None and bool(language.any())) == (not detached)
    assert (expert is not None and bool(expert.any())) == (not detached and value_input == "expert_mean")


@torch.no_grad()
def test_evaluation_starts_at_noise_of_the_slot_unless_the_recipe_says_otherwise(tmp_path: Path) -> None:
    def chain_of(rows: torch.Tensor, **keys: Any) -> torch.Tensor:
        policy = pi_policy(tmp_path, "pi0", **keys)
        obs = obs_of()
        part = {
            key: value[rows] if torch.is_tensor(value) else [value[row] for row in rows] for key, value in obs.items()
        }
        generator = SlotGenerator("cpu", seed=9, shared_seed=2, slots=rows, num_slots=3)
        actions, report = policy.predict_action_batch(part, mode="eval", generator=generator)
        assert not report.logprobs.any()
        plan = policy.plan_action_batch(
            part, generator=SlotGenerator("cpu", seed=9, shared_seed=2, slots=rows, num_slots=3)
        )
        torch.testing.assert_close(plan[:, :2], actions)
        chain = report.forward_inputs["chain"]
        assert isinstance(chain, torch.Tensor)
        return chain

    everything = torch.arange(3)
    drawn = chain_of(everything, eval_start="normal")
    assert drawn[:, 0].std() > 0.8
    torch.testing.assert_close(chain_of(everything[1:], eval_start="normal"), drawn[1:], rtol=0, atol=1e-5)
    assert not chain_of(everything, eval_start="zeros")[:, 0].any()
    unseeded = pi_policy(tmp_path, "pi0", eval_start="normal").predict_action_batch(obs_of(), mode="eval")[1]
    assert not unseeded.forward_inputs["chain"][:, 0].any()
