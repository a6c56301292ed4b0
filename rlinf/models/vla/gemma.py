"""Gemma's stacks by their published names, whose norms a condition may modulate."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from rlinf.models.vla.layer_stack import Attention, Layer, LayerStack, StackShape

_EPSILON = 1e-6

VARIANTS: dict[str, StackShape] = {
    "gemma_2b": StackShape(2048, 18, 16384, 8, 1, 256),
    "gemma_300m": StackShape(1024, 18, 4096, 8, 1, 256),
}
"""What published configurations name."""


class RMSNorm(nn.Module):
    """Root-mean-square norm whose weight is a deviation from 1.

    Args:
        width: ``W``.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor, condition: torch.Tensor | None = None) -> tuple[torch.Tensor, None]:
        """Return the normalised [N, T, W], and that the residual has no gate."""
        return (_normalized(x) * (1.0 + self.weight.float())).to(x.dtype), None


class AdaptiveNorm(nn.Module):
    """The same with scale, shift and the residual's gate taken from a condition (Peebles and Xie, arXiv 2212.09748).

    Args:
        width: ``W``, also of the condition.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, 3 * width)

    def forward(self, x: torch.Tensor, condition: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the normalised [N, T, W] and the gate.

        Args:
            x: [N, T, W].
            condition: [N, T, W]; of each token.
        """
        assert condition is not None
        scale, shift, gate = self.dense(condition).chunk(3, -1)
        return (_normalized(x) * (1.0 + scale.float()) + shift.float()).to(x.dtype), gate.to(x.dtype)


class GemmaStack(LayerStack):
    """Gemma, gated by a tanh-approximated GELU.

    Args:
        shape: Its sizes.
        is_adaptive: Whether norms are conditioned.
        vocab_size: Words; None has no embeddings.
    """

    def __init__(self, shape: StackShape, *, is_adaptive: bool = False, vocab_size: int | None = None) -> None:
        norm: type[nn.Module] = AdaptiveNorm if is_adaptive else RMSNorm
        gate = partial(F.gelu, approximate="tanh")
        layers = [Layer(shape, attention=Attention(shape), norm=norm, activation=gate) for _ in range(shape.depth)]
        super().__init__(
            layers, norm(shape.width), None if vocab_size is None else nn.Embedding(vocab_size, shape.width)
        )


def _normalized(x: torch.Tensor) -> torch.Tensor:
    """Return ``x`` over its root mean square, in float32."""
    wide = x.float()
    return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + _EPSILON)
