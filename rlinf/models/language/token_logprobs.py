"""Log-probabilities and entropies of tokens straight from hidden states, without the logits of all tokens at once.

The logits of a long batch are its largest tensor by far: 32 thousand tokens of a vocabulary of 152 thousand are 20 GB
in float32, and softmax and gradient would be two more of that size. Here they exist for a chunk of tokens at a time and
are computed again in the backward pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

CHUNK_ELEMENTS = 1 << 26
"""Logits that exist at a time: 256 MB in float32, and enough rows for an efficient product."""


@dataclass(frozen=True, slots=True)
class VocabularyShard:
    """The tokens whose logits a rank computes.

    Attributes:
        begin: First token; its logits come from the first row of the rank's weights.
        end: The token after the last; rows behind it are padding.
        group: The ranks that together have all tokens; each needs the sum of their gradients of hidden states.
    """

    begin: int
    end: int
    group: dist.ProcessGroup | None = None

    def reduce(self, tensor: torch.Tensor, operation: Any = dist.ReduceOp.SUM) -> torch.Tensor:
        """Reduce a tensor over the ranks, in place."""
        if self.group is not None:
            dist.all_reduce(tensor, operation, group=self.group)
        return tensor


class LogprobHead(nn.Module):
    """The output layer of a language model, as the log-probabilities that it gives to chosen tokens.

    Its parameters have the names of the linear layer that it replaces.

    Args:
        weight: [V, H] weights of the layer; shared, so that tied embeddings stay tied.
        bias: [V], if it has one.
        shard: Tokens that the weights are of; None are all of them.
    """

    def __init__(
        self, weight: nn.Parameter, bias: nn.Parameter | None = None, *, shard: VocabularyShard | None = None
    ) -> None:
        super().__init__()
        self.weight = weight
        self.register_parameter("bias", bias)
        self.shard = shard or VocabularyShard(0, weight.shape[0])
        self.chunk_elements = CHUNK_ELEMENTS

    def forward(
        self, hidden: torch.Tensor, targets: torch.Tensor, temperature: float = 1.0, *, with_top: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Compute log-probabilities and entropies.

        Args:
            hidden: [n, H]; last hidden states.
            targets: int64 [n]; the token that follows each.
            temperature: Divides the logits; 0, which samplers take for the most likely token, counts as 1.
            with_top: Whether to find out which targets are the most likely token.

        Returns:
            Log-probabilities of ``targets`` and entropies of the distributions they are from, both float32 (or
            float64) [n]; and with ``with_top``, which are the most likely token, bool [n].
        """
        device = hidden.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        rows = max(1, self.chunk_elements // self.weight.shape[0])
        with torch.autocast(device, enabled=False):
            logprobs, entropy, is_top = _ChunkedLogprobs.apply(  # type: ignore[no-untyped-call]
                hidden.to(dtype), self.weight, self.bias, targets, temperature or 1.0, rows, self.shard, with_top
            )
        return logprobs, entropy, is_top if with_top else None


class _ChunkedLogprobs(torch.autograd.Function):
    """Both passes chunk by chunk; the forward pass keeps the inputs and one normaliser per token."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        targets: torch.Tensor,
        temperature: float,
        rows: int,
        shard: VocabularyShard,
        with_top: bool,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        dtype = torch.promote_types(hidden.dtype, torch.float32)
        normalisers, logprobs, entropy = (torch.empty(len(targets), dtype=dtype, device=hidden.device) for _ in "123")
        is_top = torch.zeros(len(targets) if with_top else 0, dtype=torch.bool, device=hidden.device)
        compute_weight = weight[: shard.end - shard.begin].to(hidden.dtype)
        for start in range(0, len(targets), rows):
            part = slice(start, start + rows)
            logits = _logits(hidden[part], compute_weight, bias, temperature)
            normaliser = _normaliser(logits, shard)
            if with_top:
                is_top[part] = _most_likely(logits, shard) == targets[part]
            logprobs[part] = _logit_of(logits, targets[part], shard) - normaliser
            # entropy = normaliser - expected logit
            probabilities = (logits - normaliser.unsqueeze(-1)).exp_()
            entropy[part] = normaliser - shard.reduce(torch.linalg.vecdot(probabilities, logits))
            normalisers[part] = normaliser
        ctx.save_for_backward(hidden, weight, bias, targets, normalisers, entropy)
        ctx.mark_non_differentiable(is_top)
        ctx.temperature, ctx.rows, ctx.shard = temperature, rows, shard
        return logprobs, entropy, is_top

    @staticmethod
    def backward(
        ctx: Any, grad_logprobs: torch.Tensor, grad_entropy: torch.Tensor, grad_top: object
    ) -> tuple[torch.Tensor | None, ...]:
        del grad_top
        hidden, weight, bias, targets, normalisers, entropy = ctx.saved_tensors
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        shard: VocabularyShard = ctx.shard
        num_tokens = shard.end - shard.begin
        compute_weight = weight[:num_tokens].to(hidden.dtype)
        # Summed over chunks in float32: in bf16 late chunks would fall below the sum's resolution.
        grad_weight = torch.zeros_like(weight, dtype=normalisers.dtype) if needs_weight else None
        grad_bias = torch.zeros_like(bias, dtype=normalisers.dtype) if needs_bias else None
        grad_hidden = torch.empty_like(hidden) if needs_hidden else None
        for start in range(0, len(targets), ctx.rows):
            part = slice(start, start + ctx.rows)
            logits = _logits(hidden[part], compute_weight, bias, ctx.temperature)
            log_softmax = logits.sub_(normalisers[part].unsqueeze(-1))
            local = targets[part] - shard.begin
            grad = _grad_logits(log_softmax, local, grad_logprobs[part], grad_entropy[part], entropy[part])
            grad /= ctx.temperature
            if grad_bias is not None:
                grad_bias += grad.sum(0)
            grad = grad.to(hidden.dtype)
            if grad_hidden is not None:
                grad_hidden[part] = grad @ compute_weight
            if grad_weight is not None:
                grad_weight[:num_tokens] += grad.T @ hidden[part]
        return (
            grad_hidden,
            None if grad_weight is None else grad_weight.to(weight.dtype),
            None if grad_bias is None else grad_bias.to(bias.dtype),
            None,
            None,
            None,
            None,
            None,
        )


def _logits(hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, temperature: float) -> torch.Tensor:
    """Return the logits of a chunk in float32 (or float64), divided by the temperature."""
    logits = hidden @ weight.T
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if bias is not None:
        logits += bias
    return logits if temperature == 1.0 else logits.div_(temperature)


def _normaliser(logits: torch.Tensor, shard: VocabularyShard) -> torch.Tensor:
    """Return the logarithm of the sum of exponentials over all tokens."""
    own = logits.logsumexp(-1)
    if shard.group is None:
        return own
    largest = shard.reduce(own.clone(), dist.ReduceOp.MAX)
    return largest + shard.reduce((own - largest).exp_()).log_()


def _logit_of(logits: torch.Tensor, targets: torch.Tensor, shard: VocabularyShard) -> torch.Tensor:
    """Return the logit of each target, whichever rank has it."""
    local = targets - shard.begin
    if shard.group is None:
        return logits.gather(-1, local.unsqueeze(-1)).squeeze(-1)
    is_here = (local >= 0) & (local < logits.shape[-1])
    found = logits.gather(-1, (local * is_here).unsqueeze(-1)).squeeze(-1)
    return shard.reduce(found.where(is_here, 0))


def _most_likely(logits: torch.Tensor, shard: VocabularyShard) -> torch.Tensor:
    """Return the most likely token; the first of several."""
    token = logits.argmax(-1)
    if shard.group is None:
        return token
    value = logits.gather(-1, token.unsqueeze(-1)).squeeze(-1)
    largest = shard.reduce(value.clone(), dist.ReduceOp.MAX)
    candidate = (token + shard.begin).where(value == largest, torch.iinfo(token.dtype).max)
    return shard.reduce(candidate, dist.ReduceOp.MIN)


def _grad_logits(
    log_softmax: torch.Tensor,
    targets: torch.Tensor,
    grad_logprobs: torch.Tensor,
    grad_entropy: torch.Tensor,
    entropy: torch.Tensor,
) -> torch.Tensor:
    """Return the gradient of scaled logits [n, V]: ``g (onehot - p) - g_H p (log p + H)``; targets may lie outside."""
    probabilities = log_softmax.exp()
    factor = log_softmax.add_(entropy.unsqueeze(-1)).mul_(grad_entropy.unsqueeze(-1)).add_(grad_logprobs.unsqueeze(-1))
    gradient = factor.mul_(probabilities).neg_()
    is_here = (targets >= 0) & (targets < gradient.shape[-1])
    rows = torch.arange(len(targets), device=targets.device)
    gradient[rows, targets * is_here] += grad_logprobs * is_here
    return gradient
