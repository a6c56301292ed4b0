"""The key-value cache of the ``hf`` engine: a slot for each running sequence, and the attention that reads it."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

ATTENTION = "rlinf_slots"
"""Name under which ``slot_attention`` is registered with transformers."""

_FIRST_CAPACITY = 16
"""Tokens that a slot has room for at first; doubled whenever that is not enough."""


class SlotCache:
    """Keys and values of running sequences, in the form that transformers' models write and read one token at a time.

    Slots are dense: sequences lie in the first ones, so that a step's tensors are views of the cache and nothing is
    copied. Within a slot the token at position p lies at index p.

    Args:
        num_slots: Most sequences at a time.
        max_tokens: Most tokens of one.
    """

    def __init__(self, *, num_slots: int, max_tokens: int) -> None:
        self._num_slots = num_slots
        self._max_tokens = max_tokens
        self._store: torch.Tensor | None = None  # [2 (key, value), layers, slots, heads, capacity, head_dim]
        self._num_rows = 0
        self._targets = torch.empty(0, dtype=torch.long)
        self._width = 0

    def fill(self, first: int, layers: list[tuple[torch.Tensor, torch.Tensor]], sources: torch.Tensor) -> None:
        """Fill slots with what a model has cached of a batch of prompts.

        Args:
            first: The first slot to fill.
            layers: Keys and values of each layer, [prompts, heads, tokens, head_dim].
            sources: Which prompt each of the slots takes, [slots to fill].
        """
        width = layers[0][0].shape[2]
        store = self._grown(width, len(layers), layers[0][0])
        last = first + len(sources)
        for index, (keys, values) in enumerate(layers):
            store[0, index, first:last, :, :width] = keys[sources]
            store[1, index, first:last, :, :width] = values[sources]

    def move(self, source: int, target: int, num_tokens: int) -> None:
        """Copy one slot over another."""
        assert self._store is not None
        self._store[:, :, target, :, :num_tokens] = self._store[:, :, source, :, :num_tokens]

    def aim(self, positions: torch.Tensor, width: int) -> None:
        """Set where the next token of each sequence goes.

        Args:
            positions: Positions of the tokens that are computed next, [sequences].
            width: The largest position and one.
        """
        assert self._store is not None
        store = self._grown(width, self._store.shape[1], self._store[0, 0])
        _, _, _, heads, capacity, _ = store.shape
        # Where each head's next vector goes, if a layer's vectors are numbered in the order of its memory.
        first = torch.arange(len(positions) * heads, device=positions.device) * capacity
        self._targets = first + positions.repeat_interleave(heads)
        self._num_rows = len(positions)
        self._width = width

    def clear(self) -> None:
        """Give the memory back."""
        self._store = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add one token to each sequence; called by the model's attention layers.

        Args:
            key_states: [sequences, heads, 1, head_dim].
            value_states: As ``key_states``.
            layer_idx: Of the layer.

        Returns:
            Keys and values up to now, [sequences, heads, width, head_dim].
        """
        assert self._store is not None
        keys, values = self._store[0, layer_idx], self._store[1, layer_idx]
        for stored, new in ((keys, key_states), (values, value_states)):
            stored.view(-1, stored.shape[-1]).index_copy_(0, self._targets, new.reshape(-1, new.shape[-1]))
        return keys[: self._num_rows, :, : self._width], values[: self._num_rows, :, : self._width]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the number of tokens before the present one, as the model asks for it."""
        return self._width - 1

    def _grown(self, width: int, num_layers: int, like: torch.Tensor) -> torch.Tensor:
        """Return the store with room for ``width`` tokens a slot."""
        store = self._store
        if store is None or store.shape[4] < width:
            capacity = _FIRST_CAPACITY if store is None else store.shape[4]
            while capacity < width:
                capacity *= 2
            capacity = max(min(capacity, self._max_tokens), width)
            _, heads, _, head_dim = like.shape
            # Zeros: what lies beyond a sequence's tokens is masked, but a NaN times zero would still be one.
            grown = like.new_zeros(2, num_layers, self._num_slots, heads, capacity, head_dim)
            if store is not None:
                grown[:, :, :, :, : store.shape[4]] = store
            self._store = store = grown
        return store


def slot_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attend, in the form that transformers calls attention functions in.

    With one query per sequence, the query heads that share a key head are treated as queries of it, so that keys and
    values are read in place; to repeat them for each query head costs several times the rest of a step.

    Args:
        module: The attention layer.
        query: [N, query heads, L, head_dim].
        key: [N, key heads, tokens, head_dim].
        value: As ``key``.
        attention_mask: [N, 1, 1, tokens], added to the scores; None for causal attention.
        scaling: Of the products; None for the usual one.

    Returns:
        [N, L, query heads, head_dim], and None for the attention weights.
    """
    batch, num_heads, length, head_dim = query.shape
    num_key_heads = key.shape[1]
    if length == 1:
        grouped = query.reshape(batch, num_key_heads, num_heads // num_key_heads, head_dim)
        output = functional.scaled_dot_product_attention(grouped, key, value, attn_mask=attention_mask, scale=scaling)
        return output.reshape(batch, 1, num_heads, head_dim), None
    output = functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=attention_mask,
        is_causal=attention_mask is None,
        scale=scaling,
        enable_gqa=num_heads != num_key_heads,
    )
    return output.transpose(1, 2).contiguous(), None
