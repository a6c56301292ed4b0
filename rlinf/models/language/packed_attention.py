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
class AttentionPlan:
    """How the attention layers cut a pack; made once for all layers.

    Attributes:
        rectangles: int64 [n, L] each; positions in the pack of sequences of similar length, which are right-padded by
            repeating their last token.
        entries: int64 [T]; where each token of the pack lies among the entries of all rectangles, one behind the other.
    """

    rectangles: tuple[torch.Tensor, ...]
    entries: torch.Tensor

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
    rectangles, entries, start = [], torch.empty(packed.num_tokens, dtype=torch.long), 0
    for tokens, is_own in (_rectangle(packed, group) for group in groups):
        own = is_own.flatten().nonzero().squeeze(1)
        entries[tokens.flatten()[own]] = start + own
        start += tokens.numel()
        rectangles.append(tokens)
    device = packed.token_ids.device
    return AttentionPlan(tuple(tokens.to(device) for tokens in rectangles), entries.to(device))


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
        query: [T, H, D]; tokens after those of the plan get 0.
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
        _attend(tokens, query, key, value, scaling=scaling, window=window, dropout=dropout)
        for tokens in plan.rectangles
    ]
    attended = (parts[0] if len(parts) == 1 else torch.cat(parts)).index_select(0, plan.entries)
    padding = len(query) - len(attended)
    return functional.pad(attended, (0, 0, 0, 0, 0, padding)) if padding else attended


def _attend(
    tokens: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    scaling: float | None,
    window: int | None,
    dropout: float,
) -> torch.Tensor:
    """Return [n * L, H, D_v] of a rectangle's entries; the inputs are [T, H, D]."""
    longest = tokens.shape[1]
    # [n, L, H, D] to [n, H, L, D]
    q, k, v = (_gathered(tensor, tokens).transpose(1, 2) for tensor in (query, key, value))
    mask = None
    if window is not None and window < longest:
        steps = torch.arange(longest, device=query.device)
        distance = steps.unsqueeze(1) - steps
        mask = (distance >= 0) & (distance < window)
    attended = functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=mask is None, dropout_p=dropout, scale=scaling, enable_gqa=True
    )
    return attended.transpose(1, 2).flatten(0, 1)


def _gathered(tensor: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Return ``tensor[tokens]``, [n, L, H, D], with gradients that are added in the same order every time."""
    if tensor.is_cpu:
        return tensor.index_select(0, tokens.flatten()).view(*tokens.shape, *tensor.shape[1:])
    # On other devices the gradient of this sorts first; that of the faster function adds in any order.
    return tensor[tokens]


def _rectangle(packed: PackedSequences, group: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the tokens [n, L] of some sequences, and which are neither padding nor shared by an earlier one."""
    starts = torch.tensor(packed.boundaries[:-1])[group].unsqueeze(1)
    lengths = torch.tensor(packed.lengths)[group].unsqueeze(1)
    shared = torch.tensor(packed.shared)[group].unsqueeze(1)
    steps = torch.arange(int(lengths.max()))
    tokens = packed.places[starts + torch.minimum(steps, lengths - 1)]
    return tokens, (steps >= shared) & (steps < lengths)
