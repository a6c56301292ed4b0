"""A small policy acts next to a frozen flow: it sees its features and proposal, and knows how far it is from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.config.schema.train import OptimConfig
from rlinf.config.schema.vla import ActionPolicyConfig
from rlinf.data.messages.embodied import Observation
from rlinf.hybrid_engines.train.optimizer import build_optimizers
from rlinf.models import get_policy
from rlinf.models.base_policy import ForwardType
from rlinf.models.materialize import materialize
from rlinf.models.policy_conformance import check_output
from rlinf.models.vla.refined_policy import KEPT, PROPOSAL, RefinedPolicy
from tests.unit.models.vla.pi_policies import pi_policy
from tests.unit.models.vla.vla_policies import observations

pytest.importorskip("transformers")
ROWS, CHUNK, DIM, WIDTH = 3, 2, 3, 24
KEYS: dict[str, Any] = {
    "add_q_head": True,
    "state_dim": None,
    "refine_actions": True,
    "num_q_heads": 4,
    "action_policy": ActionPolicyConfig(hidden_dims=[16, 16], action_scale=1.5, proposal_dropout=0.5),
}


def obs_of() -> Observation:
    """Return three observations with states of three numbers."""
    return observations() | {"states": torch.tensor([[0.1, -0.2, 0.3], [0.5, 0.9, -0.4], [-2.0, 0.0, 0.7]])}


@pytest.fixture
def policy(tmp_path: Path) -> RefinedPolicy:
    """A policy next to a tiny pi-0.5."""
    flow = pi_policy(tmp_path, "pi05")
    torch.manual_seed(0)
    policy = get_policy(replace(flow.cfg, **KEYS))
    assert isinstance(policy, RefinedPolicy)
    return policy


@torch.no_grad()
def test_features_state_and_proposal_are_those_of_the_flow(policy: RefinedPolicy) -> None:
    seen, flow = policy.observe(obs_of()), policy.flow
    record = flow.inputs.record(obs_of(), flow.device)
    torch.testing.assert_close(seen["features"], flow.prefix(record).mean())
    torch.testing.assert_close(seen["states"], flow.inputs.states.normalize(obs_of()["states"]))
    greedy, _ = flow.predict_action_batch(obs_of(), mode="eval")
    torch.testing.assert_close(flow.inputs.actions.restore(seen[PROPOSAL]), greedy)
    joined = [seen["features"], seen["states"], seen[PROPOSAL].flatten(1)]
    torch.testing.assert_close(policy.encoder(seen), torch.cat(joined, -1))
    assert policy.encoder.width == WIDTH + 3 + CHUNK * DIM


@torch.no_grad()
def test_actions_are_restored_from_normalised_ones(policy: RefinedPolicy) -> None:
    actions, report = policy.predict_action_batch(obs_of(), mode="train", generator=torch.Generator().manual_seed(1))
    check_output(actions, report, num_action_chunks=CHUNK)
    torch.testing.assert_close(actions, policy.flow.inputs.actions.restore(1.5 * report.forward_inputs["action"]))
    back = policy.forward_inputs_of(obs_of(), actions)
    torch.testing.assert_close(back["action"], report.forward_inputs["action"])
    assert back.keys() == report.forward_inputs.keys()


def test_the_distance_from_the_proposal_moves_the_policy_alone(policy: RefinedPolicy) -> None:
    inputs = policy.observe(obs_of())
    evaluation = policy(ForwardType.ACTOR, inputs=inputs, noise=torch.zeros(ROWS, *policy.noise_shape))
    action = 1.5 * policy.act(policy.encoder(inputs))
    assert evaluation.q.shape == (ROWS, 4)
    torch.testing.assert_close(evaluation.distance, (action - inputs[PROPOSAL]).square().flatten(1).mean(1))
    evaluation.distance.sum().backward()
    moved = {name.split(".")[0] for name, p in policy.named_parameters() if p.grad is not None}
    assert moved == {"policy_head"}


def test_updates_hide_some_proposals(policy: RefinedPolicy) -> None:
    inputs = {name: tensor.repeat_interleave(200, 0) for name, tensor in policy.observe(obs_of()).items()}
    found = policy.augment(inputs, torch.Generator().manual_seed(0))
    assert 0.4 < float(found[KEPT].mean()) < 0.6
    features = policy.encoder(found)[:, -CHUNK * DIM :]
    hidden = found[KEPT][:, 0] == 0
    assert not features[hidden].any()
    assert torch.equal(features[~hidden], inputs[PROPOSAL].flatten(1)[~hidden])
    assert torch.equal(found[PROPOSAL], inputs[PROPOSAL])


def test_no_optimizer_has_weights_of_the_flow(policy: RefinedPolicy) -> None:
    optimizers = build_optimizers(policy, OptimConfig(), None, fused=False)
    trained = {id(p) for o in optimizers.values() for group in o.adam.param_groups for p in group["params"]}
    assert {n.split(".")[0] for n, p in policy.named_parameters() if id(p) in trained} == {"policy_head", "critic"}
    assert {name.split(".")[0] for name, _ in policy.export(lambda tensor: tensor)} == {"flow", "policy_head"}


def test_what_is_built_without_memory_is_filled_with_the_same_weights(policy: RefinedPolicy) -> None:
    torch.manual_seed(0)
    later = get_policy(policy.flow.cfg, on_meta=True)
    materialize(later, torch.device("cpu"))
    found = later.state_dict()
    for name, tensor in policy.state_dict().items():
        assert torch.equal(found[name], tensor), name
