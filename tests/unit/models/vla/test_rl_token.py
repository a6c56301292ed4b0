"""The token's network computes what the published one does; a flow that it is trained on keeps its weights."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from rlinf.config.schema.train import OptimConfig
from rlinf.config.schema.vla import RLTokenConfig
from rlinf.data.messages.embodied import Observation
from rlinf.errors import ConfigError
from rlinf.hybrid_engines.train.optimizer import build_optimizers
from rlinf.models import get_policy
from rlinf.models.base_policy import ForwardType
from rlinf.models.vla.flow_vla import FlowVLAPolicy
from rlinf.models.vla.published_folder import write_published
from rlinf.models.vla.refined_policy import RefinedPolicy
from rlinf.models.vla.rl_token import RLT_MODULE, Reconstruction, TokenTransformer, initial_token
from tests.unit.models.vla.every_policy import EVERY, seen_by
from tests.unit.models.vla.pi_policies import pi_policy
from tests.unit.models.vla.vla_policies import GOLDEN, observations
from toolkits.vla.seeded_weights import seeded_state

pytest.importorskip("transformers")
FIXTURE = GOLDEN / "rlt.safetensors"
ROWS, CHUNK, DIM, WIDTH, HORIZON = 3, 2, 3, 24, 6
STAGE_TWO: dict[str, Any] = {"add_q_head": True, "refine_actions": True, "state_dim": None}


def golden() -> tuple[TokenTransformer, dict[str, torch.Tensor]]:
    """Return our network with the weights of the fixture, and its tensors."""
    with safe_open(FIXTURE, "pt") as file:
        shapes, sizes = (json.loads(file.metadata()[name]) for name in ("shapes", "sizes"))
    network = TokenTransformer(RLTokenConfig(**{k: sizes[k] for k in sizes if k != "input_dim"}), 12, with_decoder=True)
    network.load_state_dict(seeded_state(shapes), strict=True)
    return network, load_file(FIXTURE)


def obs_of() -> Observation:
    """Return three observations with states of three numbers, the last without one of its cameras' words."""
    return observations() | {"states": torch.tensor([[0.1, -0.2, 0.3], [0.5, 0.9, -0.4], [-2.0, 0.0, 0.7]])}


def token_policy(folder: Path, *, weight: float = 0.0, **keys: Any) -> Any:
    """Return a tiny pi-0.5 with a token of 16 numbers."""
    token = RLTokenConfig(vla_loss_weight=weight, embed_dim=16, num_heads=4, prefix_seq_len=64, mlp_ratio=2.0)
    return pi_policy(folder, "pi05", use_rlt=True, rlt=token, **keys)


def inputs_of(policy: FlowVLAPolicy, obs: Observation) -> dict[str, torch.Tensor]:
    """Return what the first stage reads of three frames with random actions."""
    generator = torch.Generator().manual_seed(0)
    actions = torch.randn(ROWS, policy.num_supervised_actions, DIM, generator=generator)
    return policy.forward_inputs_of(obs, actions) | policy.supervised_draws(ROWS, generator)


def reconstruct(policy: FlowVLAPolicy, obs: Observation) -> Reconstruction:
    """Return the evaluation of the first stage."""
    found: Reconstruction = policy(ForwardType.RECONSTRUCTION, forward_inputs=inputs_of(policy, obs))
    return found


@torch.no_grad()
def test_token_and_errors_are_those_of_the_published_code() -> None:
    network, stored = golden()
    outputs, there = stored["outputs"], stored["there"]
    token = network.encode(outputs, there)
    torch.testing.assert_close(token, stored["token"], rtol=0, atol=1e-5)
    assert network.decoder is not None
    made = network.decoder(token, outputs, there)
    torch.testing.assert_close(made[there], stored["made"][there], rtol=0, atol=1e-5)
    torch.testing.assert_close(network.errors(outputs, there), stored["losses"], rtol=0, atol=1e-5)


@torch.no_grad()
def test_padding_is_not_read() -> None:
    network, stored = golden()
    outputs, there = stored["outputs"], stored["there"]
    changed = torch.where(there.unsqueeze(-1), outputs, 1000.0)
    torch.testing.assert_close(network.encode(changed, there), network.encode(outputs, there))
    torch.testing.assert_close(network.errors(changed, there), network.errors(outputs, there))


@torch.no_grad()
def test_an_output_is_predicted_from_the_token_and_what_is_before_it() -> None:
    network, stored = golden()
    assert network.decoder is not None
    outputs, there = stored["outputs"], torch.ones_like(stored["there"])
    changed = outputs.clone()
    changed[:, 3] += 1.0
    before, after = (network.decoder(stored["token"], seen, there) for seen in (outputs, changed))
    assert torch.equal(before[:, :4], after[:, :4])
    assert not torch.allclose(before[:, 4], after[:, 4])
    other = network.decoder(stored["token"] + 1.0, outputs, there)
    assert not torch.allclose(before[:, 0], other[:, 0])


def test_first_weights_are_those_of_positions_norms_and_layers() -> None:
    stored = load_file(FIXTURE)
    for name in ("encoder.prefix_pos_enc", "encoder.rl_token_pos_enc", "decoder.decoder_pos_enc"):
        found = initial_token(f"{RLT_MODULE}.{name}", stored[name].shape, seed=0)
        torch.testing.assert_close(found, stored[name])
    assert torch.equal(initial_token("rlt_module.encoder.layers.0.mlp_norm.weight", (4,), seed=0), torch.ones(4))
    weights = [initial_token("rlt_module.decoder.output_proj.weight", (4, 4), seed=seed) for seed in (0, 0, 1)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert not initial_token("rlt_module.decoder.output_proj.bias", (4,), seed=0).any()


@pytest.mark.parametrize("kind", ["pi0", "pi05", "smolvla", "gr00t"])
def test_every_flow_has_a_token_of_its_own_width(kind: str, tmp_path: Path) -> None:
    policy: FlowVLAPolicy = EVERY[kind](
        tmp_path, use_rlt=True, rlt=RLTokenConfig(vla_loss_weight=0.0, num_heads=2, num_layers=1)
    )
    with torch.no_grad():
        _, prefix = policy.observe(seen_by(kind))
        token = policy.features(prefix)
    assert token.shape == (ROWS, prefix.output.shape[-1])
    assert not torch.allclose(token[0], token[1])
    found = reconstruct(policy, seen_by(kind))
    assert found.errors.shape == (ROWS,)
    assert found.losses is None
    found.errors.sum().backward()
    assert {name.split(".")[0] for name, p in policy.named_parameters() if p.grad is not None} == {RLT_MODULE}


def test_without_its_own_loss_no_weight_of_the_flow_changes(tmp_path: Path) -> None:
    policy = token_policy(tmp_path)
    assert {name.split(".")[0] for name, p in policy.named_parameters() if p.requires_grad} == {RLT_MODULE}
    before = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    optimizer = build_optimizers(policy, OptimConfig(lr=3e-3, weight_decay=0.1), None, fused=False)["policy"].adam
    errors = []
    for _ in range(40):
        loss = reconstruct(policy, obs_of()).errors.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        errors.append(float(loss.detach()))
    assert errors[-1] < 0.7 * errors[0], errors
    changed = {name for name, tensor in policy.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {name for name in before if name.startswith(f"{RLT_MODULE}.")}


def test_with_its_own_loss_the_flow_learns_from_that_alone(tmp_path: Path) -> None:
    policy, plain = token_policy(tmp_path, weight=0.5), pi_policy(tmp_path, "pi05")
    found = reconstruct(policy, obs_of())
    expected = plain(ForwardType.SUPERVISED, forward_inputs=inputs_of(plain, obs_of()))
    assert found.losses is not None
    torch.testing.assert_close(found.losses, expected)
    found.errors.sum().backward(retain_graph=True)
    assert {name.split(".")[0] for name, p in policy.named_parameters() if p.grad is not None} == {RLT_MODULE}
    found.losses.sum().backward()
    assert policy.action_out_proj.weight.grad is not None


def publish_token(folder: Path, target: Path, names: Sequence[str] = (RLT_MODULE,)) -> dict[str, torch.Tensor]:
    """Write a folder with a token that is not as it starts, and return that."""
    policy = token_policy(folder)
    with torch.no_grad():
        for parameter in policy.rlt_module.parameters():
            parameter.add_(0.1)
    write_published(target, policy, policy.export(lambda tensor: tensor), source=folder, components=names)
    state: dict[str, torch.Tensor] = policy.rlt_module.state_dict()
    return state


def test_a_token_is_written_next_to_the_flow_and_trained_on(tmp_path: Path) -> None:
    expected = publish_token(tmp_path / "base", tmp_path / "with_token")
    plain, again = load_file(tmp_path / "base" / "model.safetensors"), tmp_path / "with_token" / "model.safetensors"
    assert plain.keys() == load_file(again).keys()
    assert torch.load(tmp_path / "with_token" / "rlt_module--latest_checkpoint.pt").keys() == expected.keys()
    later = token_policy(tmp_path / "with_token")
    for name, tensor in later.rlt_module.state_dict().items():
        assert torch.equal(tensor, expected[name]), name
    write_published(tmp_path / "third", later, later.export(lambda t: t), source=tmp_path / "with_token")
    third = torch.load(tmp_path / "third" / "rlt_module--latest_checkpoint.pt")
    assert all(torch.equal(tensor, expected[name]) for name, tensor in third.items())
    publish_token(tmp_path / "base", tmp_path / "without", names=())
    assert not list((tmp_path / "without").glob("*checkpoint.pt"))


def test_the_second_stage_sees_the_token_and_has_no_decoder(tmp_path: Path) -> None:
    expected = publish_token(tmp_path / "base", tmp_path / "with_token")
    stage_one = token_policy(tmp_path / "with_token")
    policy = get_policy(replace(stage_one.cfg, **STAGE_TWO))
    assert isinstance(policy, RefinedPolicy)
    assert policy.encoder.width == 16 + 3 + CHUNK * DIM
    with torch.no_grad():
        _, prefix = stage_one.observe(obs_of())
        token = stage_one.rlt_module.encode(prefix.output, prefix.there)
    torch.testing.assert_close(policy.observe(obs_of())["features"], token)
    held = {name for name in policy.state_dict() if f"{RLT_MODULE}." in name}
    assert held == {f"flow.{RLT_MODULE}.{name}" for name in expected if name.startswith("encoder.")}
    assert not any(p.requires_grad for p in policy.flow.parameters())


def test_a_second_stage_without_a_token_is_refused(tmp_path: Path) -> None:
    stage_one = token_policy(tmp_path)
    with pytest.raises(ConfigError, match=r"use_rlt: received true; .* has no rlt_module--<steps>_checkpoint\.pt"):
        get_policy(replace(stage_one.cfg, **STAGE_TWO))


def test_a_damaged_token_is_refused(tmp_path: Path) -> None:
    publish_token(tmp_path / "base", tmp_path / "with_token")
    file = tmp_path / "with_token" / "rlt_module--latest_checkpoint.pt"
    content = torch.load(file)
    del content["decoder.output_proj.bias"]
    torch.save(content, file)
    with pytest.raises(ConfigError, match="no weights for rlt_module.decoder.output_proj.bias"):
        token_policy(tmp_path / "with_token")


def test_a_prefix_that_is_too_long_is_refused(tmp_path: Path) -> None:
    token = RLTokenConfig(num_heads=4, prefix_seq_len=5)
    policy = pi_policy(tmp_path, "pi05", use_rlt=True, rlt=token)
    with pytest.raises(ConfigError, match=r"prefix_seq_len: received 5; the model attends to \d+ tokens"):
        reconstruct(policy, obs_of())


def test_heads_that_do_not_divide_the_width_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="num_heads: received 7; must divide the token's width 24"):
        pi_policy(tmp_path, "pi05", use_rlt=True, rlt=RLTokenConfig(num_heads=7))
