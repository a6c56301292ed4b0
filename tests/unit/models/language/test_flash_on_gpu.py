"""FlashAttention computes what our own attention does: log-probabilities and gradients of packed sequences."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from examples.reasoning.make_tiny_model import make_tiny_model
from rlinf.config.schema.model import CausalLMConfig
from rlinf.data.packing import pack_sequences
from rlinf.models import get_model

pytest.importorskip("transformers")
# Of one token, a pair, one that crosses a block of the kernel, and two alike.
LENGTHS = (1, 2, 150, 37, 37)
LARGEST_ERROR, GRADIENT_ERROR = 0.1, 0.05
"""Of a log-probability; of a gradient, relative to its norm. Both sides compute in bfloat16."""


def evaluate(folder: Path, attention: str, precision: str, device: str) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return log-probabilities of packed sequences, and the gradients of their mean."""
    cfg = CausalLMConfig(
        model_type="causal_lm", model_path=str(folder), precision=precision, attn_implementation=attention
    )
    model = get_model(cfg).to(device)
    sequences = [
        [4 + (7 * number + 3 * place) % 80 for place in range(length)] for number, length in enumerate(LENGTHS)
    ]
    with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
        logprobs = model(pack_sequences(sequences).to(device), temperature=1.0).logprobs
    logprobs.float().mean().backward()
    gradients = {
        name: weight.grad.float().cpu() for name, weight in model.named_parameters() if weight.grad is not None
    }
    return logprobs.detach().float().cpu(), gradients


@pytest.mark.parametrize(
    ("attention", "device"),
    [("sdpa", "cpu"), pytest.param("flash_attention_2", "cuda", marks=pytest.mark.gpu)],
    ids=["cpu", "flash"],
)
def test_log_probabilities_and_gradients_are_those_of_float32(tmp_path: Path, attention: str, device: str) -> None:
    if attention == "flash_attention_2":
        pytest.importorskip("flash_attn")
    make_tiny_model(tmp_path, hidden_size=128, num_layers=2, initializer_range=0.08)
    expected, expected_gradients = evaluate(tmp_path, "sdpa", "fp32", "cpu")
    found, gradients = evaluate(tmp_path, attention, "bf16", device)
    assert found.shape == expected.shape
    assert float((found - expected).abs().max()) < LARGEST_ERROR
    assert gradients.keys() == expected_gradients.keys()
    for name, gradient in expected_gradients.items():
        assert float((gradients[name] - gradient).norm()) <= GRADIENT_ERROR * float(gradient.norm()) + 1e-6, name
