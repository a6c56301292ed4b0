"""Chunks that go on from the one before: as the published code leads them, in the units of the environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.config.schema.vla import GuidanceConfig, RealTimeChunkingConfig
from rlinf.data.messages.embodied import PREVIOUS_ACTIONS
from rlinf.errors import AlgorithmError
from rlinf.models.control.mlp_policy import MLPPolicy
from rlinf.models.vla.flow_vla import FlowVLAPolicy
from rlinf.models.vla.real_time import PlannedBefore, guided_velocity, prefix_weights
from tests.unit.models.vla.pi_policies import pi_policy
from tests.unit.models.vla.test_guidance import policy_of
from tests.unit.models.vla.test_openpi import obs_of
from tests.unit.models.vla.vla_policies import GOLDEN

pytest.importorskip("transformers")
FIXTURE: dict[str, Any] = json.loads((GOLDEN / "real_time.json").read_text(encoding="utf-8"))
HORIZON, EXECUTED, SIZE = 6, 2, 3


@pytest.mark.parametrize("case", FIXTURE["cases"], ids=lambda case: f"{case['schedule']}-{case['bound']}")
def test_actions_are_those_of_the_published_code(case: dict[str, Any]) -> None:
    mixing, shift, planned, point = (torch.tensor(FIXTURE[key]) for key in ("mixing", "shift", "planned", "noise"))
    cfg = RealTimeChunkingConfig(
        enabled=True, inference_delay=case["delay"], prefix_attention_schedule=case["schedule"]
    )
    weights = prefix_weights(cfg, horizon=len(planned[0]), num_executed=len(planned[0]) - case["planned"])
    torch.testing.assert_close(weights, torch.tensor(case["weights"]), rtol=0, atol=1e-6)
    before = PlannedBefore(planned, weights.unsqueeze(1), case["bound"])
    steps = FIXTURE["num_steps"]
    for step in range(steps):
        # The published time runs the other way, and its velocity points to actions.
        elapsed = step / steps

        def velocity(x: torch.Tensor, elapsed: float = elapsed) -> torch.Tensor:
            return -(torch.tanh(x.flatten(1) @ mixing + shift) * (1.0 + elapsed)).view_as(x)

        point = point - guided_velocity(velocity, point, 1.0 - elapsed, before) / steps
    torch.testing.assert_close(point, torch.tensor(case["actions"]), rtol=0, atol=1e-5)


def real_time_policy(folder: Path, variant: str = "pi0", **keys: Any) -> FlowVLAPolicy:
    chunking = RealTimeChunkingConfig(enabled=True, inference_delay=2, **keys)
    return pi_policy(folder, variant, noise_method="flow_ode", real_time_chunking=chunking)


def previous_of(plan: torch.Tensor) -> torch.Tensor:
    """Return what might have been planned before, in the environment's units: other than what is planned now."""
    return plan[:, : HORIZON - EXECUTED] + torch.tensor([0.3, -0.5, 0.2])


@pytest.mark.parametrize("variant", ["pi0", "pi05"])
def test_a_first_chunk_is_what_evaluation_does_and_what_it_would_do_next(variant: str, tmp_path: Path) -> None:
    policy = real_time_policy(tmp_path, variant)
    plan = policy.plan_action_batch(obs_of())
    assert plan.shape == (3, HORIZON, SIZE)
    assert not plan.requires_grad
    torch.testing.assert_close(plan[:, :EXECUTED], policy.predict_action_batch(obs_of(), mode="eval")[0])


@pytest.mark.parametrize("variant", ["pi0", "pi05"])
def test_a_chunk_goes_on_from_what_was_planned(variant: str, tmp_path: Path) -> None:
    policy = real_time_policy(tmp_path, variant)
    fresh = policy.plan_action_batch(obs_of())
    previous = previous_of(fresh)
    plan = policy.plan_action_batch({**obs_of(), PREVIOUS_ACTIONS: previous})
    assert not plan.requires_grad

    def distance(actions: torch.Tensor) -> torch.Tensor:
        """Return how far actions are from those planned before, [H - C], in deviations of the data."""
        gap = policy.inputs.actions.normalize(actions[:, : HORIZON - EXECUTED]) - policy.inputs.actions.normalize(
            previous
        )
        return gap.norm(dim=-1).mean(0)

    share = distance(plan) / distance(fresh)
    assert (share[:2] < 0.2).all()
    assert share[2] < share[3] < 1.0


def test_numbers_are_normalised_and_padded_ones_lead_nowhere(tmp_path: Path) -> None:
    policy = real_time_policy(tmp_path)
    previous = previous_of(policy.plan_action_batch(obs_of()))
    record, prefix = policy.observe(obs_of())
    planned, weights = torch.zeros(3, HORIZON, 8), torch.zeros(HORIZON, 8)
    planned[:, : HORIZON - EXECUTED, :SIZE] = policy.inputs.actions.normalize(previous)
    weights[:, :SIZE] = prefix_weights(policy.cfg.real_time_chunking, horizon=HORIZON, num_executed=EXECUTED)[:, None]
    before, x = PlannedBefore(planned, weights, 5.0), torch.zeros(3, HORIZON, 8)
    for time in policy._times(policy.device).split(1):

        def velocity(point: torch.Tensor, time: torch.Tensor = time) -> torch.Tensor:
            return policy.velocity(prefix, record["state"], point.unsqueeze(1), time)[:, 0]

        x = (x - guided_velocity(velocity, x, float(time), before) / policy.cfg.num_steps).detach()
    plan = policy.plan_action_batch({**obs_of(), PREVIOUS_ACTIONS: previous})
    torch.testing.assert_close(plan, policy.inputs.actions.restore(x[:, :, :SIZE]))


def test_rows_do_not_lead_each_other(tmp_path: Path) -> None:
    policy = real_time_policy(tmp_path)
    obs = obs_of()
    previous = previous_of(policy.plan_action_batch(obs))
    together = policy.plan_action_batch({**obs, PREVIOUS_ACTIONS: previous})
    for row in range(3):
        alone = {key: value[row : row + 1] for key, value in {**obs, PREVIOUS_ACTIONS: previous}.items()}
        torch.testing.assert_close(policy.plan_action_batch(alone)[0], together[row], rtol=0, atol=1e-4)


def test_without_guidance_a_chunk_is_taken_as_it_comes(tmp_path: Path) -> None:
    policy = real_time_policy(tmp_path, max_guidance_weight=0.0)
    fresh = policy.plan_action_batch(obs_of())
    assert torch.equal(policy.plan_action_batch({**obs_of(), PREVIOUS_ACTIONS: previous_of(fresh)}), fresh)


def test_requests_are_led_too(tmp_path: Path) -> None:
    chunking = RealTimeChunkingConfig(enabled=True, inference_delay=2)
    plain = policy_of(tmp_path / "pi", "pi0")
    keys: dict[str, Any] = {"noise_method": "flow_ode", "max_prompt_length": 48, "real_time_chunking": chunking}
    policy = pi_policy(tmp_path / "pi", "pi0", guidance=GuidanceConfig(type="positive", scale=2.5), **keys)
    fresh = policy.plan_action_batch(obs_of())
    assert (plain.plan_action_batch(obs_of()) - fresh).abs().max() > 1e-3
    previous = previous_of(fresh)
    plan = policy.plan_action_batch({**obs_of(), PREVIOUS_ACTIONS: previous})
    assert plan.isfinite().all()
    assert (plan[:, :2] - previous[:, :2]).norm() < 0.2 * (fresh[:, :2] - previous[:, :2]).norm()


def test_other_policies_say_that_they_cannot() -> None:
    with pytest.raises(AlgorithmError, match="actor.model.model_type"):
        MLPPolicy.plan_action_batch(object.__new__(MLPPolicy), {})
