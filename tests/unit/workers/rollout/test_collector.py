"""What the collector takes for the state after a chunk, where an episode ended and where it did not."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from rlinf.config.schema.model import MLPPolicyConfig
from rlinf.data.messages.action_request import PolicyFeedback
from rlinf.data.messages.embodied import ChunkStep, Trajectory
from rlinf.models import get_model
from rlinf.workers.rollout.collector import FeedbackReader, TrajectoryCollector
from tests.unit.workers.on_device import OnDevice, on_device

ENVS = 3


def step_result(value: float, final: Any = ()) -> ChunkStep:
    flags = torch.zeros(ENVS, 1, dtype=torch.bool)
    truncations = flags.clone()
    truncations[list(final)] = True
    return ChunkStep(
        obs={"states": torch.full((ENVS, 1), value)},
        rewards=torch.zeros(ENVS, 1),
        terminations=flags,
        truncations=truncations,
        executed=~flags,
        final_obs={"states": torch.tensor([[value + 100 + row] for row in final])} if final else None,
        final_ids=torch.tensor(final) if final else None,
    )


def collect(*, add_q_head: bool) -> Trajectory:
    cfg = MLPPolicyConfig(model_type="mlp_policy", obs_dim=1, action_dim=1, hidden_dims=[4], add_q_head=add_q_head)
    model = get_model(cfg)
    collector, reader = TrajectoryCollector(), FeedbackReader(model, bootstrap_always=False, records_next=add_q_head)
    for obs, step in ((0.0, step_result(1.0, final=(0, 2))), (1.0, step_result(2.0))):
        states = {"states": torch.full((ENVS, 1), obs)}
        collector.add_decision(model.predict_action_batch(states, mode="train")[1], version=int(obs))
        collector.add_result(step, reader.read(step, acted_on=states, values=collector.has_values))
    return collector.finish(env_ids=torch.arange(ENVS), group_ids=torch.arange(ENVS))


def test_a_transition_leads_into_the_last_state_of_its_episode() -> None:
    trajectory = collect(add_q_head=True)
    assert trajectory.next_inputs["states"].squeeze(-1).tolist() == [[101.0, 1.0, 103.0], [2.0, 2.0, 2.0]]
    assert trajectory.forward_inputs["states"].squeeze(-1).tolist() == [[0.0] * 3, [1.0] * 3]


def test_everything_is_kept_on_the_host_and_no_observation_twice() -> None:
    cfg = MLPPolicyConfig(model_type="mlp_policy", obs_dim=1, action_dim=1, hidden_dims=[4], add_value_head=True)
    collector, step = TrajectoryCollector(), step_result(1.0, final=(0, 2))
    states = {"states": torch.zeros(ENVS, 1)}
    _, output = get_model(cfg).predict_action_batch(states, mode="train")
    feedback = PolicyFeedback(torch.tensor([0, 2]), torch.ones(2, 1), {"states": torch.ones(ENVS, 1)})
    collector.add_decision(output.map(on_device), version=0)
    collector.add_result(step, feedback.map(on_device))
    collector.add_last_values(on_device(torch.ones(ENVS, 1)))
    trajectory = collector.finish(env_ids=torch.arange(ENVS), group_ids=torch.arange(ENVS))
    kept = [collector.last_values, *collector.final_values, *collector.next_inputs[0].values()]
    collector.decisions[0].map(kept.append)
    trajectory.map(kept.append)
    assert not [tensor for tensor in kept if isinstance(tensor, OnDevice)]
    assert (trajectory.final_values.flatten().tolist(), trajectory.values.shape) == ([1, 0, 1], (2, ENVS, 1))
    assert (collector.results[0].obs, collector.results[0].final_obs) == ({}, None)


def test_every_chunk_carries_the_version_that_chose_it() -> None:
    assert collect(add_q_head=False).versions.tolist() == [[0] * ENVS, [1] * ENVS]


def test_nothing_is_recorded_for_losses_that_do_not_need_it() -> None:
    assert collect(add_q_head=False).next_inputs is None


@pytest.mark.parametrize("add_q_head", [True, False])
def test_what_somebody_else_did_is_recorded_in_the_units_of_the_policy(add_q_head: bool) -> None:
    cfg = MLPPolicyConfig(
        model_type="mlp_policy", obs_dim=1, action_dim=1, hidden_dims=[4], add_q_head=add_q_head, action_scale=2.0
    )
    model = get_model(cfg)
    collector, reader = TrajectoryCollector(), FeedbackReader(model, bootstrap_always=False)
    states = {"states": torch.zeros(ENVS, 1)}
    wanted, output = model.predict_action_batch(states, mode="train")
    flag, done = torch.tensor([[False], [True], [False]]), torch.tensor([0.5, 1.0, 0.5]).view(ENVS, 1, 1)
    collector.add_decision(output, version=0)
    step = replace(step_result(1.0), intervene_action=done, intervene_flag=flag)
    collector.add_result(step, reader.read(step, acted_on=states, values=False))
    collector.add_decision(output, version=0)
    step = replace(step_result(2.0), intervene_action=wanted, intervene_flag=torch.zeros_like(flag))
    collector.add_result(step, reader.read(step, acted_on=None, values=False))
    trajectory = collector.finish(env_ids=torch.arange(ENVS), group_ids=torch.arange(ENVS))
    own = output.forward_inputs["action"]
    assert trajectory.forward_inputs["action"][0, 1].item() == 0.5
    assert torch.equal(trajectory.forward_inputs["action"][0, [0, 2]], own[[0, 2]])
    assert torch.equal(trajectory.forward_inputs["action"][1], own)
    assert trajectory.intervened.tolist() == [flag.tolist(), [[False]] * ENVS]


def test_without_interveners_nothing_is_said_of_interventions() -> None:
    assert collect(add_q_head=True).intervened is None


def test_an_experts_labels_count_as_long_as_they_answer_what_the_policy_saw() -> None:
    """Behind an action of the policy's own, an action of the expert answers a state that was not recorded."""
    cfg = MLPPolicyConfig(
        model_type="mlp_policy", obs_dim=1, action_dim=1, hidden_dims=[4], num_action_chunks=3, action_scale=2.0
    )
    model = get_model(cfg)
    collector, reader = TrajectoryCollector(), FeedbackReader(model, bootstrap_always=False)
    states = {"states": torch.arange(4.0).view(4, 1)}
    _, output = model.predict_action_batch(states, mode="train")
    collector.add_decision(output, version=0)
    # The policy, the expert, the expert in an episode that ends at its second action, an environment at rest.
    flags = torch.tensor([[False] * 3, [True] * 3, [True, True, False], [False] * 3])
    executed = torch.tensor([[True] * 3, [True] * 3, [True, True, False], [False] * 3])
    nothing, label = torch.zeros(4, 3), torch.arange(12.0).view(4, 3, 1) / 12
    step = ChunkStep(
        obs=states,
        rewards=nothing,
        terminations=nothing.bool(),
        truncations=nothing.bool(),
        executed=executed,
        intervene_action=label,
        intervene_flag=flags,
        expert_action=label,
    )
    assert step.has_foreign_actions
    collector.add_result(step, reader.read(step, acted_on=states, values=False))
    inputs = collector.finish(env_ids=torch.arange(4), group_ids=torch.arange(4)).forward_inputs
    torch.testing.assert_close(inputs["label"][0], label / 2)
    assert torch.equal(inputs["action"][0], output.forward_inputs["action"])
    counted = inputs["labelled"][0] & executed
    assert counted.tolist() == [[True, False, False], [True] * 3, [True, True, False], [False] * 3]
    assert inputs["expert_acts"][0].tolist() == [False, True, True, False]
