"""``causal_lm`` on packed sequences against transformers on one sequence at a time."""

import copy
import sys

import pytest
import torch

from rlinf.data.packing import pack_responses, pack_sequences
from rlinf.errors import AlgorithmError, ConfigError, MissingPackageError
from rlinf.models import get_model, get_policy
from rlinf.models.packed_attention import packed_attention, plan_attention
from tests.unit.models.tiny_language_models import save_tiny, tiny_config

SEQUENCES = [[5, 6, 7, 8, 9, 10], [1], [3, 4, 5, 6, 7, 8, 9, 11, 12, 33], [2, 1], [1, 2, 3, 4, 5, 6, 7, 8, 9, 30, 31]]


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def tiny(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    return folder, save_tiny(folder, tie_word_embeddings=request.param).double()


def expectation(reference, sequence, temperature=1.0):
    """Log-probability and entropy of each token but the first, by transformers alone."""
    logits = reference(torch.tensor([sequence])).logits[0, :-1] / temperature
    log_softmax = logits.log_softmax(-1)
    logprobs = log_softmax.gather(-1, torch.tensor(sequence[1:]).unsqueeze(-1)).squeeze(-1)
    return logprobs, -(log_softmax.exp() * log_softmax).sum(-1)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_packed_sequences_do_not_see_each_other(tiny, temperature):
    folder, reference = tiny
    packed = pack_sequences(SEQUENCES)
    result = get_model(tiny_config(folder)).double()(packed, temperature=temperature)
    for start, sequence in zip(packed.boundaries, SEQUENCES, strict=False):
        assert result.logprobs[start] == result.entropy[start] == 0
        own = slice(start + 1, start + len(sequence))
        logprobs, entropy = expectation(reference, sequence, temperature)
        torch.testing.assert_close(result.logprobs[own], logprobs, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(result.entropy[own], entropy, rtol=1e-9, atol=1e-9)
    assert result.values is None


def test_gradients_are_those_of_transformers(tiny):
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


def test_only_what_is_asked_about_is_computed(tiny):
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


def test_sliding_windows_are_kept(tmp_path):
    window = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1, "num_hidden_layers": 2}
    reference = save_tiny(tmp_path, **window).double()
    packed = pack_sequences(SEQUENCES)
    result = get_model(tiny_config(tmp_path)).double()(packed)
    last = slice(packed.boundaries[4] + 1, packed.boundaries[5])
    torch.testing.assert_close(result.logprobs[last], expectation(reference, SEQUENCES[4])[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("window", [{}, {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}])
def test_answers_know_the_prompt_that_they_share_and_not_each_other(tmp_path, window):
    reference = save_tiny(tmp_path, num_hidden_layers=2, **window).double()
    prompts = [[3, 4, 5, 6, 7, 8], [9, 10], [3, 4, 5, 6, 7, 8], [9, 10], [3, 4, 5, 6, 7, 8]]
    answers = [[11, 12, 13], [14], [15, 16, 17, 18, 19], [20, 21], [22]]
    packed, is_response = pack_responses(prompts, answers, share_prompts=True)
    assert packed.num_tokens == 8 + 12
    result = get_model(tiny_config(tmp_path)).double()(packed, scored=is_response)
    parts = torch.split(result.logprobs[is_response], list(map(len, answers)))
    for prompt, answer, part in zip(prompts, answers, parts, strict=True):
        expected = expectation(reference, prompt + answer)[0][-len(answer) :]
        torch.testing.assert_close(part, expected, rtol=1e-9, atol=1e-9)


def test_exported_names_are_those_of_a_hugging_face_checkpoint(tiny):
    from safetensors.torch import load_file

    folder, _ = tiny
    model = get_model(tiny_config(folder, add_value_head=True))
    exported = dict(model.export(lambda tensor: tensor.detach()))
    on_disk = load_file(folder / "model.safetensors")
    assert set(exported) == set(on_disk)
    assert all(torch.equal(exported[name], tensor) for name, tensor in on_disk.items())
    assert model.is_value_parameter("value_head.weight")


def test_adapters_start_as_nothing_are_merged_and_can_be_left_out(tmp_path):
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


def test_the_names_of_recipes_build_it(tmp_path):
    save_tiny(tmp_path)
    for name in ("causal_lm", "qwen2.5", "qwen3"):
        assert type(get_model(tiny_config(tmp_path, model_type=name))).__name__ == "CausalLM"
    with pytest.raises(ConfigError, match=r"actor\.model\.model_type: received qwen3"):
        get_policy(tiny_config(tmp_path, model_type="qwen3"))


def test_a_missing_folder_says_what_to_do(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"actor\.model\.model_path: there is no folder.*hf download"):
        get_model(tiny_config(tmp_path / "absent"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConfigError, match="HF_HUB_OFFLINE forbids"):
        get_model(tiny_config("Qwen/Qwen2.5-1.5B"))
    with pytest.raises(ConfigError, match=r"transformers cannot load"):
        get_model(tiny_config(tmp_path))


def test_an_incomplete_checkpoint_is_refused(tmp_path):
    from safetensors.torch import load_file, save_file

    save_tiny(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"holds no weights for model\.layers\.1\.mlp\.up_proj\.weight"):
        get_model(tiny_config(tmp_path))


def test_models_that_would_be_computed_wrongly_are_refused(tmp_path):
    from transformers import GraniteConfig, GraniteForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    GraniteForCausalLM(GraniteConfig(vocab_size=20, logits_scaling=2.0, **sizes)).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"GraniteForCausalLM.*scales or caps its logits \(logits_scaling\)"):
        get_model(tiny_config(tmp_path))


def test_adapters_name_the_layers_there_are(tmp_path):
    save_tiny(tmp_path)
    with pytest.raises(ConfigError, match=r"lora_target_modules.*down_proj, gate_proj"):
        get_model(tiny_config(tmp_path, is_lora=True, lora_target_modules=["nowhere"]))


def test_without_transformers_the_remedy_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingPackageError, match=r"rlinf\[reasoning\]"):
        get_model(tiny_config(tmp_path))


def test_the_attention_cannot_be_used_without_its_plan(tiny):
    folder, _ = tiny
    model = get_model(tiny_config(folder))
    with pytest.raises(AlgorithmError, match="not called by CausalLM"):
        model.model(input_ids=torch.tensor([[1, 2]]))


def test_scores_are_scaled_as_the_layer_says(tiny):
    packed = pack_sequences([[1, 2, 3], [4, 5]])
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, 2, 5, 4, generator=generator, dtype=torch.float64) for _ in range(3))
    found, _ = packed_attention(torch.nn.Identity(), query, key, value, None, plan=plan_attention(packed), scaling=0.9)
    for part in (slice(0, 3), slice(3, 5)):
        scores = 0.9 * query[0, :, part] @ key[0, :, part].transpose(1, 2)
        length = part.stop - part.start
        scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -torch.inf)
        expected = (scores.softmax(-1) @ value[0, :, part]).transpose(0, 1)
        torch.testing.assert_close(found[0, part], expected)


@pytest.mark.parametrize(("alpha", "scaling"), [(6.0, 2.0), (None, 1.0)])
def test_adapters_are_scaled_by_alpha_over_rank(tmp_path, alpha, scaling):
    save_tiny(tmp_path)
    model = get_model(tiny_config(tmp_path, is_lora=True, lora_rank=3, lora_alpha=alpha))
    layers = [module for module in model.modules() if hasattr(module, "lora_A")]
    assert layers
    assert {layer.scaling["default"] for layer in layers} == {scaling}
