"""Operations of a training step against those that torch counts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from rlinf.algorithms.flops import DecoderFlops
from rlinf.algorithms.minibatch import SequenceCost
from rlinf.data.packing import pack_responses
from rlinf.models import get_model
from rlinf.workers.actor.logprobs import decoder_flops
from tests.unit.models.tiny_language_models import save_tiny, tiny_config

pytest.importorskip("transformers")

PRODUCTS = {torch.ops.aten.mm, torch.ops.aten.addmm}


def test_products_with_weights_are_those_that_torch_counts(tmp_path: Path) -> None:
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "vocab_size": 512}
    save_tiny(tmp_path, tie_word_embeddings=False, **sizes)
    model = get_model(tiny_config(tmp_path))
    prompts, answers = [tuple(range(5)), tuple(range(9))], [tuple(range(20)), tuple(range(13))]
    packed, is_response = pack_responses(prompts, answers)
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        model(packed, scored=is_response)
    counted = sum(count for operator, count in counter.get_flop_counts()["Global"].items() if operator in PRODUCTS)
    flops = decoder_flops(model)
    without_attention = DecoderFlops(SequenceCost(), flops.layer_parameters, flops.head_parameters)
    found = without_attention.of_training(25 + 22, 20 + 13)
    # Biases and norms are among the parameters, and are no products.
    assert found / 3 == pytest.approx(counted, rel=0.02)


@pytest.mark.parametrize("head_dim", [8, 64], ids=["narrow heads", "wide heads"])
def test_attention_counts_the_channels_of_its_heads(tmp_path: Path, head_dim: int) -> None:
    """As in Qwen3, where heads times their size is not the hidden size; torch counts whole squares."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "vocab_size": 512}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": head_dim}
    Qwen3ForCausalLM(Qwen3Config(**sizes, **heads, tie_word_embeddings=False)).save_pretrained(tmp_path)
    model = get_model(tiny_config(tmp_path, attn_implementation="sdpa"))
    length, answer = 200, 60
    packed, is_response = pack_responses([tuple(range(length - answer))], [tuple(range(answer))])
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        model(packed, scored=is_response)
    counts = counter.get_flop_counts()["Global"]
    squares = sum(count for operator, count in counts.items() if operator not in PRODUCTS)
    assert squares == 3 * 4 * length**2 * 4 * head_dim
    flops = decoder_flops(model)
    counted = sum(counts.values()) - squares / 2
    assert flops.of_training(flops.cost.of(length), answer) / 3 == pytest.approx(counted, rel=0.005)


def test_attention_costs_two_products_for_each_causal_pair() -> None:
    flops = DecoderFlops(SequenceCost.of_decoder(num_parameters=1000, num_layers=2, attention_size=16), 1000, 160)
    length = 50
    pairs = length * length / 2
    attention = 2 * pairs * 2 * 2 * 16  # layers x pairs x (scores and sums) x (multiply and add) x channels
    expected = 3 * (2 * 1000 * length + attention + 2 * 160 * 30)
    assert flops.of_training(flops.cost.of(length), 30) == pytest.approx(expected)
