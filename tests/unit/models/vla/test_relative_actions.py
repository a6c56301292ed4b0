"""Actions relative to the state: by hand, and through a policy in every place where actions go in or come out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.config.schema.vla import RealTimeChunkingConfig
from rlinf.data.messages.embodied import PREVIOUS_ACTIONS
from rlinf.errors import ConfigError, EnvironmentFailure
from rlinf.models.vla.relative_actions import relative_mask, to_absolute, to_relative
from tests.unit.models.vla.pi_policies import STATISTICS, pi_policy
from tests.unit.models.vla.vla_policies import observations

RUNS = [2, -1]

pytest.importorskip("transformers")
STATES = torch.tensor([[0.1, -0.2, 0.3], [0.5, 0.9, -0.4], [-2.0, 0.0, 0.7]])
OBS = observations() | {"states": STATES}
ORIGIN = STATES * torch.tensor([1.0, 1.0, 0.0])


def seeded(**keys: Any) -> dict[str, Any]:
    return {"mode": "train", "generator": torch.Generator().manual_seed(3), **keys}


def test_runs_say_which_numbers_are_relative() -> None:
    assert relative_mask([6, -1]).tolist() == [True] * 6 + [False]
    assert relative_mask([1, -2, 1]).tolist() == [True, False, False, True]
    assert relative_mask([]).tolist() == []


def test_numbers_by_hand() -> None:
    actions = torch.tensor([[[1.0, 2.0, 3.0, 9.0], [4.0, 5.0, 6.0, 9.0]]])
    states = torch.tensor([[0.5, -1.0, 7.0, 7.0, 7.0]])
    # All actions of a chunk are relative to one state; further numbers are left as they are.
    relative = torch.tensor([[[0.5, 3.0, 3.0, 9.0], [3.5, 6.0, 6.0, 9.0]]])
    assert torch.equal(to_relative(actions, states, RUNS), relative)
    assert torch.equal(to_absolute(relative, states, RUNS), actions)
    assert torch.equal(to_relative(actions, states[:, :2], RUNS), relative)
    assert torch.equal(to_relative(actions, states, []), actions)


@torch.no_grad()
def test_a_policy_acts_relative_to_the_state_with_the_same_log_probabilities(tmp_path: Path) -> None:
    plain, relative = pi_policy(tmp_path, "pi0"), pi_policy(tmp_path, "pi0", delta_actions=RUNS)
    (before, first), (after, second) = (policy.predict_action_batch(OBS, **seeded()) for policy in (plain, relative))
    torch.testing.assert_close(after, before + ORIGIN[:, None])
    assert torch.equal(first.logprobs, second.logprobs)
    assert torch.equal(first.forward_inputs["chain"], second.forward_inputs["chain"])
    torch.testing.assert_close(relative.plan_action_batch(OBS), plain.plan_action_batch(OBS) + ORIGIN[:, None])
    start = torch.zeros(3, 6, 8)
    torch.testing.assert_close(relative.actions_from(OBS, start), plain.actions_from(OBS, start) + ORIGIN[:, None])


def test_recorded_actions_are_learned_as_the_model_predicts_them(tmp_path: Path) -> None:
    policy = pi_policy(tmp_path, "pi0", delta_actions=RUNS)
    actions = torch.randn(3, 6, 3, generator=torch.Generator().manual_seed(0))
    learned = policy.forward_inputs_of(OBS, actions)["action"]
    expected = (actions - ORIGIN[:, None] - torch.tensor(STATISTICS["mean"])) / (torch.tensor(STATISTICS["std"]) + 1e-6)
    torch.testing.assert_close(learned, expected)
    torch.testing.assert_close(policy.inputs.to_actions(learned, OBS), actions)


def test_what_was_planned_before_leads_in_the_frame_of_the_present_state(tmp_path: Path) -> None:
    chunking = RealTimeChunkingConfig(enabled=True, inference_delay=1)
    policy = pi_policy(tmp_path, "pi0", delta_actions=RUNS, real_time_chunking=chunking)
    planned = torch.randn(3, 4, 3, generator=torch.Generator().manual_seed(0))
    before = policy._planned_before({**OBS, PREVIOUS_ACTIONS: planned})
    assert before is not None
    moved = OBS | {"states": STATES + 0.25}
    later = policy._planned_before({**moved, PREVIOUS_ACTIONS: planned})
    assert later is not None
    # The same pose is 0.25 less away from a state that has come 0.25 nearer.
    scale = torch.tensor(STATISTICS["std"]) + 1e-6
    shift = torch.tensor([0.25, 0.25, 0.0]) / scale
    torch.testing.assert_close(later.actions[:, :4, :3], before.actions[:, :4, :3] - shift)
    torch.testing.assert_close(policy.inputs.to_actions(before.actions[:, :4, :3], OBS), planned)


def test_what_is_far_from_the_statistics_is_counted_in_the_model_s_frame(tmp_path: Path) -> None:
    policy = pi_policy(tmp_path, "pi0", delta_actions=RUNS)
    near = ORIGIN[:, None].expand(-1, 6, -1) + torch.tensor(STATISTICS["mean"])
    assert policy.actions_beyond(OBS, near) == [0.0, 0.0, 0.0]
    assert policy.actions_beyond(OBS, near + torch.tensor([0.0, 10.5, 0.0])) == [0.0, 1.0, 0.0]


def test_states_are_needed_and_long_enough(tmp_path: Path) -> None:
    policy = pi_policy(tmp_path, "pi0", delta_actions=RUNS)
    with pytest.raises(EnvironmentFailure, match="for 'states'"):
        policy.inputs.to_actions(torch.zeros(3, 2, 3), observations())
    with pytest.raises(ConfigError, match=r"delta_actions: received \[-2, 2\]; states have 3 numbers"):
        pi_policy(tmp_path, "pi0", delta_actions=[-2, 2])
