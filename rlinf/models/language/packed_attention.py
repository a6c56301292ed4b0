"""Causal attention within each of several packed sequences, for transformers models.

FlashAttention takes the sequences' boundaries as they are. Where it is not there, sequences of similar length are
gathered into rectangles: right padding needs no mask under causal attention, so the fastest kernel of
``scaled_dot_product_attention`` runs, and the cost is that of the single sequences instead of the whole pack's square.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn import functional

from rlinf.data.packing import PackedSequences
from rlinf.errors import AlgorithmError

NAME = "rlinf_packed"
"""Under which ``packed_attention`` is known to transformers."""

MAX_PADDING = 1.25
"""A rectangle holds sequences down to its longest one's length over this: more would compute too much padding, less
would call too many kernels."""


@dataclass(frozen=True, slots=True)
class Rectangle:
    """Sequences of similar length, right-padded.

    Attributes:
        tokens: int64 [n, L]; positions in the pack, padding repeats a sequence's last token.
        flat: int64 [m]; which of the n * L entries are neither padding nor another sequence's, who shares them.
        targets: int64 [m]; the positions in the pack that these belong to.
    """

    tokens: torch.Tensor
    flat: torch.Tensor
    targets: torch.Tensor


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """How the attention layers cut a pack; made once for all layers.

    Attributes:
        rectangles: Together their ``targets`` are every token once.
    """

    rectangles: tuple[Rectangle, ...]

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scaling: float | None = None,
        window: int | None = None,
        dropout: float = 0.0,
    ) -> torch.Tensor:
        """See ``attend``."""
        return attend(query, key, value, self, scaling=scaling, window=window, dropout=dropout)


class Plan(Protocol):
    """Who attends to whom, as attention layers use it: an ``AttentionPlan``, or a rank's share of one."""

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scaling: float | None = None,
        window: int | None = None,
        dropout: float = 0.0,
    ) -> torch.Tensor:
        """See ``attend``."""


def plan_attention(packed: PackedSequences) -> AttentionPlan:
    """Group a pack's sequences by length."""
    order = sorted(range(packed.num_sequences), key=lambda number: -packed.lengths[number])
    groups: list[list[int]] = []
    for number in order:
        if groups and packed.lengths[groups[-1][0]] <= packed.lengths[number] * MAX_PADDING:
            groups[-1].append(number)
        else:
            groups.append([number])
    device = packed.token_ids.device
    return AttentionPlan(tuple(_rectangle(packed, group, device) for group in groups))


def flash_arguments(packed: PackedSequences) -> dict[str, Any]:
    """Return the keyword arguments by which transformers hands FlashAttention the sequences' boundaries.

    Raises:
        AlgorithmError: Sequences share tokens, which boundaries cannot tell.
    """
    if any(packed.shared):
        raise AlgorithmError("flash_arguments: sequences that share their beginnings need attn_implementation=sdpa.")
    ends = torch.tensor([0, *itertools.accumulate(packed.lengths)], dtype=torch.int32, device=packed.token_ids.device)
    longest = max(packed.lengths)
    return {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends, "max_length_q": longest, "max_length_k": longest}


def packed_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    plan: Plan | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attend within each sequence to the tokens up to one's own; called by transformers' attention layers.

    Args:
        module: The layer.
        query: [1, H, T, D].
        key: [1, H_kv, T, D].
        value: [1, H_kv, T, D_v].
        attention_mask: Always None: the plan says who sees whom.
        plan: Of the pack; its ``attend`` takes [T, H, D].
        scaling: Factor on the scores.
        sliding_window: Tokens that each token sees, itself included; None is all.
        dropout: Probability of dropping a weight.
        softcap: Refused.
        s_aux: Refused.

    Returns:
        [1, T, H, D_v], and None for the weights.

    Raises:
        AlgorithmError: The model is called without a plan, or needs what this does not compute.
    """
    if plan is None or attention_mask is not None or softcap is not None or s_aux is not None:
        raise AlgorithmError(
            f"packed_attention: {type(module).__name__} asks for a mask, soft capping or attention sinks, or was not "
            "called by CausalLM. Set actor.model.attn_implementation=flash_attention_2, which knows all of these."
        )
    query, key, value = (tensor.squeeze(0).transpose(0, 1) for tensor in (query, key, value))
    result = plan.attend(query, key, value, scaling=scaling, window=sliding_window, dropout=dropout)
    return result.unsqueeze(0), None


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    plan: AttentionPlan,
    *,
    scaling: float | None = None,
    window: int | None = None,
    dropout: float = 0.0,
) -> torch.Tensor:
    """Attend within each sequence to the tokens up to one's own.

    Args:
        query: [T, H, D]; tokens that the plan does not know get 0.
        key: [T, H_kv, D].
        value: [T, H_kv, D_v].
        plan: Of the pack.
        scaling: Factor on the scores; None takes ``D ** -0.5``.
        window: Tokens that each token sees, itself included; None is all.
        dropout: Probability of dropping a weight.

    Returns:
        [T, H, D_v].
    """
    parts = [
        _attend(rectangle, query, key, value, scaling=scaling, window=window, dropout=dropout)
        for rectangle in plan.rectangles
    ]
    order = torch.cat([rectangle.targets for rectangle in plan.rectangles])
    return torch.zeros_like(query[..., :1]).expand(-1, -1, value.shape[-1]).index_copy(0, order, torch.cat(parts))


def _attend(
    rectangle: Rectangle,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    scaling: float | None,
    window: int | None,
    dropout: float,
) -> torch.Tensor:
    """Return [m, H, D_v] of a rectangle's tokens; the inputs are [T, H, D]."""
    longest = rectangle.tokens.shape[1]
    # [n, L, H, D] to [n, H, L, D]
    q, k, v = (tensor[rectangle.tokens].transpose(1, 2) for tensor in (query, key, value))
    mask = None
    if window is not None and window < longest:
        steps = torch.arange(longest, device=query.device)
        distance = steps.unsqueeze(1) - steps
        mask = (distance >= 0) & (distance < window)
    attended = functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=mask is None, dropout_p=dropout, scale=scaling, enable_gqa=True
    )
    return attended.transpose(1, 2).flatten(0, 1)[rectangle.flat]


def _rectangle(packed: PackedSequences, group: list[int], device: torch.device) -> Rectangle:
    starts = torch.tensor(packed.boundaries[:-1])[group].unsqueeze(1)
    lengths = torch.tensor(packed.lengths)[group].unsqueeze(1)
    shared = torch.tensor(packed.shared)[group].unsqueeze(1)
    steps = torch.arange(int(lengths.max()))
    tokens = packed.places[starts + torch.minimum(steps, lengths - 1)]
    flat = ((steps >= shared) & (steps < lengths)).flatten().nonzero().squeeze(1)
    return Rectangle(tokens=tokens.to(device), flat=flat.to(device), targets=tokens.flatten()[flat].to(device))
