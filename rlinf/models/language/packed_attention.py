"""Causal attention within each of several packed sequences, for transformers models.

FlashAttention takes the sequences' boundaries as they are. Where it is not there, sequences of similar length are
gathered into rectangles: right padding needs no mask under causal attention, so the fastest kernel of
``scaled_dot_product_attention`` runs, and the cost is that of the single sequences instead of the whole pack's square.
Of sequences that share most of their tokens, as the branches of an episode do, only the others attend, under a mask.
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


MIN_TAIL_LENGTH, MAX_TAIL_SHARE = 64, 0.5
"""Of sequences as long as this, down to which share of own tokens these alone attend: the mask that they need makes the
kernel compute all pairs, twice as many as a causal one. On CPUs; devices have faster kernels without a mask."""


@dataclass(frozen=True, slots=True)
class Rectangle:
    """Sequences of similar length that one call of the kernel takes.

    Attributes:
        tokens: int64 [n, L]; positions in the pack, right-padded by repeating the last token.
        attending: int64 [n, Q]; positions of those that attend, the last ones of each sequence, padded; None: all.
        distance: int64 [n, 1, Q, L]; how far before those each token lies; None where all attend.
    """

    tokens: torch.Tensor
    attending: torch.Tensor | None = None
    distance: torch.Tensor | None = None

    def to(self, device: torch.device) -> Rectangle:
        """Return the same on another device."""
        parts = (self.tokens, self.attending, self.distance)
        return Rectangle(*(None if part is None else part.to(device) for part in parts))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """How the attention layers cut a pack; made once for all layers.

    Attributes:
        rectangles: Of sequences of similar length.
        entries: int64 [T]; where each token of the pack lies among the results of all rectangles, one behind the other.
    """

    rectangles: tuple[Rectangle, ...]
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
    """Group a pack's sequences by length, those of which a tail attends alone by that of the tail, too."""
    order = sorted(range(packed.num_sequences), key=lambda number: -packed.lengths[number])
    groups: list[list[int]] = []
    tails: list[list[int]] = []
    for number in order:
        chosen = tails if _has_tail(packed, number) else groups
        if not _joined(packed, number, chosen):
            chosen.append([number])
    rectangles, entries, start = [], torch.empty(packed.num_tokens, dtype=torch.long), 0
    made = [_rectangle(packed, group) for group in groups] + [_tail_rectangle(packed, group) for group in tails]
    for rectangle, is_own in made:
        tokens = rectangle.tokens if rectangle.attending is None else rectangle.attending
        own = is_own.flatten().nonzero().squeeze(1)
        entries[tokens.flatten()[own]] = start + own
        start += tokens.numel()
        rectangles.append(rectangle)
    device = packed.token_ids.device
    return AttentionPlan(tuple(rectangle.to(device) for rectangle in rectangles), entries.to(device))


def _has_tail(packed: PackedSequences, number: int) -> bool:
    """Return whether only the tokens of a sequence that it does not share attend."""
    length = packed.lengths[number]
    own = length - packed.shared[number]
    return packed.token_ids.is_cpu and length >= MIN_TAIL_LENGTH and 0 < own <= MAX_TAIL_SHARE * length


def _joined(packed: PackedSequences, number: int, groups: list[list[int]]) -> bool:
    """Add a sequence to the group of its length, if there is one."""

    def fits(group: list[int]) -> bool:
        first = group[0]
        if packed.lengths[first] > packed.lengths[number] * MAX_PADDING:
            return False
        if not _has_tail(packed, number):
            return True
        sizes = [packed.lengths[each] - packed.shared[each] for each in (first, number)]
        return max(sizes) <= min(sizes) * MAX_PADDING

    # Groups of sequences without a tail follow each other by length: only the last one may fit.
    group = next((each for each in reversed(groups) if fits(each)), None)
    if group is not None:
        group.append(number)
    return group is not None


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
        _attend(rectangle, query, key, value, scaling=scaling, window=window, dropout=dropout)
        for rectangle in plan.rectangles
    ]
    attended = (parts[0] if len(parts) == 1 else torch.cat(parts)).index_select(0, plan.entries)
    padding = len(query) - len(attended)
    return functional.pad(attended, (0, 0, 0, 0, 0, padding)) if padding else attended


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
    """Return [n * L, H, D_v] of a rectangle's tokens, or [n * Q, H, D_v] of those that attend; of [T, H, D]."""
    tokens, distance = rectangle.tokens, rectangle.distance
    longest = tokens.shape[1]
    attending = tokens if rectangle.attending is None else rectangle.attending
    # [n, L, H, D] to [n, H, L, D]
    q, k, v = (_gathered(*part).transpose(1, 2) for part in ((query, attending), (key, tokens), (value, tokens)))
    mask = None if distance is None else distance >= 0
    if window is not None and window < longest:
        if distance is None:
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


def _rectangle(packed: PackedSequences, group: list[int]) -> tuple[Rectangle, torch.Tensor]:
    """Return some sequences, and which tokens of theirs [n, L] are neither padding nor shared by an earlier one."""
    starts, lengths, shared = _bounds(packed, group)
    steps = torch.arange(int(lengths.max()))
    tokens = packed.places[starts + torch.minimum(steps, lengths - 1)]
    return Rectangle(tokens), (steps >= shared) & (steps < lengths)


def _tail_rectangle(packed: PackedSequences, group: list[int]) -> tuple[Rectangle, torch.Tensor]:
    """Return some sequences whose own tokens alone attend, and which of these [n, Q] are no padding."""
    rectangle, _ = _rectangle(packed, group)
    starts, lengths, shared = _bounds(packed, group)
    steps = shared + torch.arange(int((lengths - shared).max()))
    places = torch.minimum(steps, lengths - 1)
    distance = places.unsqueeze(2) - torch.arange(rectangle.tokens.shape[1])
    return Rectangle(rectangle.tokens, packed.places[starts + places], distance.unsqueeze(1)), steps < lengths


def _bounds(packed: PackedSequences, group: list[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return where sequences begin in ``places``, their lengths and how many tokens they share, [n, 1] each."""
    columns = (packed.boundaries[:-1], packed.lengths, packed.shared)
    starts, lengths, shared = (torch.tensor(column)[group].unsqueeze(1) for column in columns)
    return starts, lengths, shared
