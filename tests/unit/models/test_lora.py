"""Adapters start as nothing, are merged, and can be left out."""

from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.data.packing import pack_sequences
from rlinf.errors import ConfigError
from rlinf.models import get_model
from rlinf.models.lora import is_adapter, is_within
from tests.unit.models.tiny_language_models import save_tiny, tiny_config
from tests.unit.models.vla.gr00t_policies import gr00t_policy
from tests.unit.models.vla.pi_policies import pi_policy
from tests.unit.models.vla.smolvla_policies import smolvla_policy
from tests.unit.models.vla.vla_policies import random_policy

SEQUENCES = [[5, 6, 7, 8, 9, 10], [1], [3, 4, 5, 6, 7, 8, 9, 11, 12, 33], [2, 1], [1, 2, 3, 4, 5, 6, 7, 8, 9, 30, 31]]


def test_adapters_start_as_nothing_are_merged_and_can_be_left_out(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    save_tiny(tmp_path)
    packed = pack_sequences(SEQUENCES)
    plain = get_model(tiny_config(tmp_path)).double()
    model = get_model(tiny_config(tmp_path, is_lora=True, lora_rank=3, lora_alpha=5.0, add_value_head=True)).double()
    assert torch.equal(model(packed).logprobs, plain(packed).logprobs)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert all("lora_" in name or name.startswith("value_head.") for name in trained)
    assert len([name for name in trained if "lora_" in name]) == 2 * 7 * 2
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1)
    adapted = model(packed).logprobs
    assert not torch.allclose(adapted, plain(packed).logprobs)
    with model.without_adapters():
        torch.testing.assert_close(model(packed).logprobs, plain(packed).logprobs)
    assert torch.equal(model(packed).logprobs, adapted)
    exported = dict(model.export(lambda tensor: tensor.detach()))
    assert set(exported) == set(load_file(tmp_path / "model.safetensors"))
    plain.load_state_dict(exported, strict=False)
    torch.testing.assert_close(plain(packed).logprobs, adapted)


def test_adapters_name_the_layers_there_are(tmp_path: Path) -> None:
    save_tiny(tmp_path)
    with pytest.raises(ConfigError, match=r"lora_target_modules.*down_proj, gate_proj"):
        get_model(tiny_config(tmp_path, is_lora=True, lora_target_modules=["nowhere"]))


@pytest.mark.parametrize(("alpha", "scaling"), [(6.0, 2.0), (None, 1.0)])
def test_adapters_are_scaled_by_alpha_over_rank(tmp_path: Path, alpha: float | None, scaling: float) -> None:
    save_tiny(tmp_path)
    model = get_model(tiny_config(tmp_path, is_lora=True, lora_rank=3, lora_alpha=alpha))
    layers = [module for module in model.modules() if hasattr(module, "lora_A")]
    assert layers
    assert {layer.scaling["default"] for layer in layers} == {scaling}


PROJECTIONS = ["action_in_proj", "action_out_proj", "state_proj"]
# How many parameters are trained whole, by the module that they belong to.
WHOLE: dict[str, tuple[Any, dict[str, int]]] = {
    "openvla": (lambda folder, **keys: random_policy("openvla", folder, **keys), {"value_head": 6}),
    "tokens": (lambda folder, **keys: random_policy("oft", folder, **keys), {"value_head": 6}),
    "film": (
        lambda folder, **keys: random_policy(
            "oft", folder, head="l1", use_proprio=True, state_dim=2, use_film=True, **keys
        ),
        # Weight and bias in two of three blocks of two towers: the last block has no part in features.
        {"value_head": 6, "action_head": 16, "log_std": 1, "proprio_projector": 4, "scale": 8, "shift": 8},
    ),
    "pi0": (
        lambda folder, **keys: pi_policy(folder, "pi0", **keys),
        {"value_head": 6, **dict.fromkeys([*PROJECTIONS, "action_time_mlp_in", "action_time_mlp_out"], 2)},
    ),
    "pi05": (
        lambda folder, **keys: pi_policy(folder, "pi05", **keys),
        {"value_head": 6, **dict.fromkeys([*PROJECTIONS[:2], "time_mlp_in", "time_mlp_out"], 2)},
    ),
    "smolvla": (
        smolvla_policy,
        {"value_head": 6, **dict.fromkeys([*PROJECTIONS, "action_time_mlp_in", "action_time_mlp_out"], 2)},
    ),
}


@pytest.mark.parametrize("kind", WHOLE)
def test_policies_train_adapters_and_what_is_trained_whole_and_nothing_else(kind: str, tmp_path: Path) -> None:
    make, expected = WHOLE[kind]
    policy = make(tmp_path, is_lora=True, lora_rank=2, add_value_head=True)
    trained = [name for name, p in policy.named_parameters() if p.requires_grad and not policy.is_adapter(name)]
    found = {module: sum(is_within(name, [module]) for name in trained) for module in expected}
    assert found == expected
    assert sum(found.values()) == len(trained)
    assert not any(is_adapter(name) and is_within(name, policy.cfg.lora_whole_modules) for name in policy.state_dict())


def test_the_whole_head_of_gr00t_is_trained_but_for_its_transformer(tmp_path: Path) -> None:
    policy = gr00t_policy(tmp_path, is_lora=True, lora_rank=2, add_value_head=True)
    for name, parameter in policy.named_parameters():
        is_head = name.startswith("action_head.") and not name.startswith("action_head.model.")
        assert parameter.requires_grad == (is_head or is_adapter(name) or name.startswith("value_head.")), name


def test_modules_to_train_whole_are_chosen_by_name(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"is_lora": True, "lora_rank": 2}
    chosen = ["layers.1.input_layernorm", "projector"]
    policy = random_policy("oft", tmp_path, lora_whole_modules=chosen, **keys)
    trained = {name for name, p in policy.named_parameters() if p.requires_grad and not is_adapter(name)}
    layers = [f"projector.fc{index}.{part}" for index in (1, 2, 3) for part in ("weight", "bias")]
    assert trained == {"language_model.model.layers.1.input_layernorm.weight", *layers}
    assert not any(is_adapter(name) for name in policy.state_dict() if name.startswith("projector."))
    with pytest.raises(
        ConfigError, match=r"lora_whole_modules: received featurize, where the model trains no parameters"
    ):
        random_policy("oft", tmp_path, lora_whole_modules=["featurize", "scale"], **keys)
