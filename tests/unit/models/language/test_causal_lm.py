"""``causal_lm`` on packed sequences against transformers on one sequence at a time."""

import copy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from packed_expectations import expectation

from rlinf.data.packing import pack_responses, pack_sequences
from rlinf.errors import ConfigError, MissingPackageError
from rlinf.models import get_model, get_policy
from tests.unit.models.tiny_language_models import save_tiny, tiny_config

SEQUENCES = [[5, 6, 7, 8, 9, 10], [1], [3, 4, 5, 6, 7, 8, 9, 11, 12, 33], [2, 1], [1, 2, 3, 4, 5, 6, 7, 8, 9, 30, 31]]


def test_gradients_are_those_of_transformers(tiny: tuple[Path, Any]) -> None:
    folder, reference = tiny
    reference = copy.deepcopy(reference)
    model = get_model(tiny_config(folder)).double()
    result = model(pack_sequences(SEQUENCES))
    (result.logprobs.sum() - 0.3 * result.entropy.sum()).backward()
    parts = [expectation(reference, sequence) for sequence in SEQUENCES]
    sum(logprobs.sum() - 0.3 * entropy.sum() for logprobs, entropy in parts).backward()
    expected = dict(reference.named_parameters())
    assert {name for name, _ in model.named_parameters()} == set(expected)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name].grad, rtol=1e-6, atol=1e-8, msg=name)


def test_only_what_is_asked_about_is_computed(tiny: tuple[Path, Any]) -> None:
    folder, _ = tiny
    model = get_model(tiny_config(folder, add_value_head=True)).double()
    torch.nn.init.normal_(model.value_head.weight)
    packed, is_response = pack_responses([[1, 2, 3], [4]], [[5, 6], [7, 8, 9]])
    everything, answers = model(packed), model(packed, scored=is_response)
    for name in ("logprobs", "entropy", "values"):
        one, other = getattr(everything, name), getattr(answers, name)
        torch.testing.assert_close(other[is_response], one[is_response])
        assert other[~is_response].abs().max() == 0
    assert (everything.logprobs[~is_response] != 0).sum() == 2
    # The value of a token's state does not know the token: only what follows it changes.
    packed.token_ids[4] = 20
    changed = model(packed).values
    torch.testing.assert_close(changed[:5], everything.values[:5])
    nothing = model(packed, scored=torch.zeros_like(is_response))
    nothing.logprobs.sum().backward()
    gradients = [p.grad for name, p in model.named_parameters() if not name.startswith("value_head.")]
    assert all(gradient is not None and gradient.abs().max() == 0 for gradient in gradients)


def test_exported_names_are_those_of_a_hugging_face_checkpoint(tiny: tuple[Path, Any]) -> None:
    from safetensors.torch import load_file

    folder, _ = tiny
    model = get_model(tiny_config(folder, add_value_head=True))
    exported = dict(model.export(lambda tensor: tensor.detach()))
    on_disk = load_file(folder / "model.safetensors")
    assert set(exported) == set(on_disk)
    assert all(torch.equal(exported[name], tensor) for name, tensor in on_disk.items())
    assert model.is_value_parameter("value_head.weight")


def test_the_names_of_recipes_build_it(tmp_path: Path) -> None:
    save_tiny(tmp_path)
    for name in ("causal_lm", "qwen2.5", "qwen3"):
        assert type(get_model(tiny_config(tmp_path, model_type=name))).__name__ == "CausalLM"
    with pytest.raises(ConfigError, match=r"actor\.model\.model_type: received qwen3"):
        get_policy(tiny_config(tmp_path, model_type="qwen3"))


def test_an_incomplete_checkpoint_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    save_tiny(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"holds no weights for model\.layers\.1\.mlp\.up_proj\.weight"):
        get_model(tiny_config(tmp_path))


def test_models_that_would_be_computed_wrongly_are_refused(tmp_path: Path) -> None:
    from transformers import GraniteConfig, GraniteForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    GraniteForCausalLM(GraniteConfig(vocab_size=20, logits_scaling=2.0, **sizes)).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"GraniteForCausalLM.*scales or caps its logits \(logits_scaling\)"):
        get_model(tiny_config(tmp_path))


def test_without_transformers_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingPackageError, match=r"rlinf\[reasoning\]"):
        get_model(tiny_config(tmp_path))
