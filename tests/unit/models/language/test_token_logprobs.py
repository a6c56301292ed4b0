"""The fused head equals the naive computation, and never holds the logits of all tokens."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from rlinf.models.language.token_logprobs import LogprobHead

TOKENS, WIDTH, VOCABULARY = 40, 8, 50


def inputs(dtype: torch.dtype = torch.float64, *, bias: bool = False) -> tuple[nn.Linear, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    linear = nn.Linear(WIDTH, VOCABULARY, bias=bias).to(dtype)
    with torch.no_grad():
        linear.weight.normal_(generator=generator)
    hidden = torch.randn(TOKENS, WIDTH, dtype=dtype, generator=generator, requires_grad=True)
    targets = torch.randint(VOCABULARY, (TOKENS,), generator=generator)
    return linear, hidden, targets


def naive(linear: nn.Linear, hidden: torch.Tensor, targets: torch.Tensor, temperature: float) -> tuple[Any, Any]:
    log_softmax = (linear(hidden) / temperature).log_softmax(-1)
    logprobs = log_softmax.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    return logprobs, -(log_softmax.exp() * log_softmax).sum(-1)


def gradients(outputs: Any, tensors: Any) -> Any:
    logprobs, entropy = outputs
    weights = torch.linspace(-1, 2, TOKENS, dtype=logprobs.dtype)
    return torch.autograd.grad((logprobs * weights).sum() + (entropy * weights.flip(0)).sum(), tensors)


def fused(linear: nn.Linear, rows: int = 7) -> LogprobHead:
    head = LogprobHead(linear.weight, linear.bias)
    head.chunk_elements = rows * VOCABULARY + 1
    return head


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_values_and_gradients_are_those_of_the_naive_computation(temperature: float, bias: bool) -> None:
    linear, hidden, targets = inputs(bias=bias)
    tensors = [hidden, *linear.parameters()]
    expected = naive(linear, hidden, targets, temperature)
    actual = fused(linear)(hidden, targets, temperature)[:2]
    for got, wanted in zip(actual, expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)
    for got, wanted in zip(gradients(actual, tensors), gradients(expected, tensors), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-9)


def test_the_most_likely_tokens_are_told_where_they_are_asked_for() -> None:
    linear, hidden, targets = inputs()
    expected = linear(hidden).argmax(-1)
    targets[::2] = expected[::2]
    *_, is_top = fused(linear)(hidden, targets, with_top=True)
    assert torch.equal(is_top, targets == expected)
    assert is_top.any()
    assert not is_top.all()
    assert fused(linear)(hidden, targets)[2] is None


def test_temperature_zero_is_that_of_the_distribution_itself() -> None:
    linear, hidden, targets = inputs()
    head = fused(linear)
    for got, wanted in zip(head(hidden, targets, 0.0)[:2], head(hidden, targets, 1.0)[:2], strict=True):
        assert torch.equal(got, wanted)


def test_half_precision_sums_in_float32() -> None:
    linear, hidden, targets = inputs(torch.bfloat16)
    logprobs, entropy, _ = fused(linear)(hidden, targets)
    assert logprobs.dtype == entropy.dtype == torch.float32
    exact = naive(linear.float(), hidden.float(), targets, 1.0)[0]
    torch.testing.assert_close(logprobs, exact, atol=0.1, rtol=0)
    assert torch.autograd.grad(logprobs.sum(), hidden)[0].dtype == torch.bfloat16


def test_autocast_computes_the_product_in_its_precision() -> None:
    linear, hidden, targets = inputs(torch.float32)
    head = fused(linear)
    exact = head(hidden, targets)[0]
    with torch.autocast("cpu", torch.bfloat16):
        low = head(hidden, targets)[0]
    assert low.dtype == torch.float32
    assert not torch.equal(low, exact)
    torch.testing.assert_close(low, exact, atol=0.1, rtol=0)


def test_no_token_is_no_problem() -> None:
    linear, hidden, targets = inputs()
    logprobs, entropy, is_top = fused(linear)(hidden[:0], targets[:0], with_top=True)
    assert is_top.shape == (0,)
    (logprobs.sum() + entropy.sum()).backward()
    assert linear.weight.grad.abs().max() == 0


class LargestTensor(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return result


def largest_tensor(
    head: LogprobHead | Callable[..., Any], hidden: torch.Tensor, targets: torch.Tensor
) -> tuple[int, Any]:
    saved = []
    with (
        LargestTensor() as largest,
        torch.autograd.graph.saved_tensors_hooks(lambda t: (saved.append(t.numel()), t)[1], lambda t: t),
    ):
        logprobs, entropy = head(hidden, targets)[:2]
        (logprobs.sum() + entropy.sum()).backward()
    return largest.elements, max(saved)


def test_the_logits_of_all_tokens_are_never_there_at_once() -> None:
    linear, hidden, targets = inputs()
    at_once, kept = largest_tensor(fused(linear, rows=10), hidden, targets)
    assert at_once == 10 * VOCABULARY
    assert kept == VOCABULARY * WIDTH  # The weight itself.
    # The measurement sees what the naive computation holds.
    assert (
        largest_tensor(lambda states, tokens: naive(linear, states, tokens, 1.0), hidden, targets)[0]
        == TOKENS * VOCABULARY
    )
