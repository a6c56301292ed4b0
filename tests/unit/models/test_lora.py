"""Adapters start as nothing, are merged, and can be left out."""

from pathlib import Path

import pytest
import torch

from rlinf.data.packing import pack_sequences
from rlinf.errors import ConfigError
from rlinf.models import get_model
from tests.unit.models.tiny_language_models import save_tiny, tiny_config

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
