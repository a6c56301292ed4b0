"""A policy over noise steers a frozen flow: what it chooses is where the flow starts, what critics value and log."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.config.schema.train import OptimConfig
from rlinf.config.schema.vla import NoisePolicyConfig
from rlinf.data.messages.embodied import Observation
from rlinf.errors import AlgorithmError, ConfigError
from rlinf.hybrid_engines.train.optimizer import build_optimizers
from rlinf.models import check_policy, get_policy
from rlinf.models.base_policy import ForwardType
from rlinf.models.materialize import materialize
from rlinf.models.vla.flow_vla import FlowVLAPolicy
from rlinf.models.vla.image_resizing import resize
from rlinf.models.vla.steered_policy import SteeredPolicy, noise_policy_config
from tests.unit.models.vla.gr00t_policies import gr00t_policy
from tests.unit.models.vla.pi_policies import pi_policy
from tests.unit.models.vla.smolvla_policies import smolvla_policy
from tests.unit.models.vla.vla_policies import observations
from toolkits.vla import export_policy

pytest.importorskip("transformers")
ROWS, NOISE, HORIZON = 3, 8, 6
KEYS: dict[str, Any] = {
    "add_q_head": True,
    "state_dim": None,
    "num_q_heads": 4,
    "noise_policy": NoisePolicyConfig(hidden_dims=[16, 16], image_size=20, latent_dim=8, noise_scale=1.5),
}


def obs_of() -> Observation:
    """Return three observations with states of three numbers."""
    return observations() | {"states": torch.tensor([[0.1, -0.2, 0.3], [0.5, 0.9, -0.4], [-2.0, 0.0, 0.7]])}


def steered(flow: FlowVLAPolicy) -> SteeredPolicy:
    """Return what steers a flow."""
    torch.manual_seed(0)
    policy = get_policy(replace(flow.cfg, **KEYS))
    assert isinstance(policy, SteeredPolicy)
    return policy


@pytest.fixture
def policy(tmp_path: Path) -> SteeredPolicy:
    """A tiny pi-0.5 that is steered."""
    return steered(pi_policy(tmp_path, "pi05"))


def acted(policy: SteeredPolicy, mode: Any = "train") -> Any:
    """Return actions for three observations, and the report."""
    return policy.predict_action_batch(obs_of(), mode=mode, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("mode", ["train", "eval"])
@torch.no_grad()
def test_the_flow_starts_from_the_noise_that_is_chosen(mode: str, policy: SteeredPolicy) -> None:
    actions, report = acted(policy, mode)
    noise = report.forward_inputs["action"]
    assert noise.shape == report.logprobs.shape == (ROWS, 1, NOISE)
    assert float(noise.abs().max()) < 1.0
    flow = policy.flow
    record = flow.inputs.record(obs_of(), flow.device)
    start = torch.stack([1.5 * noise[:, 0]] * HORIZON, 1)
    chain, _ = flow.sample(flow.prefix(record), record["state"], start, None)
    torch.testing.assert_close(actions, flow.inputs.actions.restore(chain[:, -1, :2, :3]))
    assert len({round(float(value), 5) for value in actions[:, 0, 0]}) == ROWS


def test_evaluation_starts_from_the_squashed_mean(policy: SteeredPolicy) -> None:
    _, report = acted(policy, "eval")
    mean, _ = policy._gaussian(policy.encoder(policy.observe(obs_of())))
    torch.testing.assert_close(report.forward_inputs["action"], torch.tanh(mean))


def test_the_rules_of_policies_are_kept_and_log_probabilities_are_those_of_the_noise(policy: SteeredPolicy) -> None:
    check_policy(policy, obs_of(), num_action_chunks=2)
    _, report = acted(policy)
    again = policy(forward_inputs=report.forward_inputs)
    torch.testing.assert_close(again.logprobs, report.logprobs, rtol=0, atol=1e-4)
    assert float(report.logprobs.std()) > 0


def test_small_images_and_normalised_states_are_seen(policy: SteeredPolicy) -> None:
    seen, obs = policy.observe(obs_of()), obs_of()
    assert seen.keys() == {"main_images", "states"}
    assert torch.equal(seen["main_images"], resize(obs["main_images"], 20, "bilinear"))
    torch.testing.assert_close(seen["states"], policy.flow.inputs.states.normalize(obs["states"]))
    assert policy.encoder.width == 8 + 3


def test_critics_value_the_noise_and_pass_its_gradient_to_the_policy_alone(policy: SteeredPolicy) -> None:
    inputs = policy.observe(obs_of())
    noise = torch.randn(ROWS, *policy.noise_shape, generator=torch.Generator().manual_seed(1))
    first, second = (
        policy(ForwardType.CRITIC, inputs=inputs, action=action, next_inputs=inputs, noise=noise)
        for action in (torch.zeros(ROWS, 1, NOISE), torch.full((ROWS, 1, NOISE), 0.5))
    )
    assert first.q.shape == (ROWS, 4)
    assert bool((first.q != second.q).all())
    assert torch.equal(first.next_q, second.next_q)
    policy(ForwardType.ACTOR, inputs=inputs, noise=noise).q.sum().backward()
    assert all(float(p.grad.abs().max()) > 0 for p in policy.policy_head.parameters() if p.grad is not None)
    assert policy.policy_head[0].weight.grad is not None
    assert all(p.grad is None for p in (*policy.flow.parameters(), *policy.encoder.parameters()))
    assert policy.action_size == NOISE


def test_no_optimizer_has_weights_of_the_flow(policy: SteeredPolicy) -> None:
    optimizers = build_optimizers(policy, OptimConfig(), None, fused=False)
    trained = {id(p) for o in optimizers.values() for group in o.adam.param_groups for p in group["params"]}
    named = {name for name, p in policy.named_parameters() if id(p) in trained}
    assert {name.split(".")[0] for name in named} == {"encoder", "policy_head", "critic"}
    sent = {name.split(".")[0] for name, _ in policy.export(lambda tensor: tensor)}
    assert sent == {"flow", "encoder", "policy_head"}


def test_what_is_built_without_memory_is_filled_with_the_same_weights(policy: SteeredPolicy) -> None:
    torch.manual_seed(0)
    later = get_policy(policy.flow.cfg, on_meta=True)
    assert next(p for name, p in later.named_parameters() if name.startswith("flow.")).is_meta
    for name, parameter in later.named_parameters():
        if not name.startswith("flow."):
            parameter.data.zero_()
    materialize(later, torch.device("cpu"))
    found = later.state_dict()
    for name, tensor in policy.state_dict().items():
        assert torch.equal(found[name], tensor), name


def test_the_policy_over_noise_has_the_keys_that_are_given(policy: SteeredPolicy) -> None:
    given = NoisePolicyConfig(
        hidden_dims=[3],
        activation="tanh",
        initial_log_std=0.5,
        image_keys=["a", "b"],
        image_size=24,
        encoder="resnet10",
        latent_dim=5,
        random_shift=2,
    )
    flow = policy.flow
    flow.cfg, flow.padded_dim = replace(flow.cfg, noise_policy=given, q_head_type="layer_norm"), 7
    found = noise_policy_config(flow)
    for key, value in asdict(given).items():
        if hasattr(found, key) and key != "image_size":
            assert getattr(found, key) == value
    assert found.obs_dim == 3
    assert (found.camera_size, found.action_size, found.q_head_type) == ((24, 24), 7, "layer_norm")
    assert found.num_action_chunks == 1


def test_actions_of_others_have_no_noise(policy: SteeredPolicy) -> None:
    with pytest.raises(AlgorithmError, match="whose noise is not known"):
        policy.forward_inputs_of(obs_of(), torch.zeros(ROWS, 2, 3))


def test_units_that_are_sharded_hold_the_flow_and_recomputed_ones_do_not(policy: SteeredPolicy) -> None:
    flow = {id(unit) for unit in policy.flow.shard_units()}
    assert flow
    assert flow <= {id(unit) for unit in policy.shard_units()}
    recomputed = {id(unit) for unit in policy.recompute_units()}
    assert not flow & recomputed
    assert {id(policy.critic), id(policy.policy_head)} <= recomputed


def test_a_flow_that_was_steered_is_not_exported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    arguments = ["pixel_reach_dsrl_openpi_tiny", "--checkpoint", str(tmp_path), "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["export_policy.py", *arguments])
    with pytest.raises(ConfigError, match="left its flow as it is in 'results/tiny_pi0'"):
        export_policy.main()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("build", [smolvla_policy, gr00t_policy])
def test_other_flows_are_steered_too(build: Callable[[Path], FlowVLAPolicy], tmp_path: Path) -> None:
    check_policy(steered(build(tmp_path)), obs_of(), num_action_chunks=2)
