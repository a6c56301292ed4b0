"""Sequences of tokens laid end to end: what a language model trains on, without padding, and what they share once."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import torch

from rlinf.errors import AlgorithmError

Tokens: TypeAlias = "Sequence[int] | torch.Tensor"
"""Token ids, [L]; of integers of any size."""
SharedPrefix: TypeAlias = tuple[int, int]
"""Number of an earlier sequence, and how many tokens a sequence begins with that this one does, too."""
IntArray: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

MIN_SHARED = 16
"""A part of a prompt that is shorter is computed anew: looking up where it lies costs about as much."""


@dataclass(frozen=True, slots=True)
class PackedSequences:
    """``N`` sequences of ``T`` tokens in total, one behind the other; what some begin with may lie there once for all.

    Whatever is known per token lies next to ``token_ids`` as a tensor [T]: its entry i is about token i.

    Attributes:
        token_ids: int64 [T].
        position_ids: int64 [T]; position within the sequence, from 0.
        sequence_ids: int64 [T]; number of the sequence, from 0; of tokens that are shared, the first one's.
        previous: int64 [T]; where the token before lies, of the first of a sequence itself.
        lengths: Tokens of each sequence, those it shares among them, [N], on the host.
        shared: How many tokens each sequence begins with that lie in an earlier one, [N], on the host.
        places: int64 [sum(lengths)]; where the tokens of each sequence lie, one sequence behind another, on the host.
    """

    token_ids: torch.Tensor
    position_ids: torch.Tensor
    sequence_ids: torch.Tensor
    previous: torch.Tensor
    lengths: tuple[int, ...]
    shared: tuple[int, ...]
    places: torch.Tensor

    @property
    def num_tokens(self) -> int:
        """Tokens in the pack: shared ones count once."""
        return len(self.token_ids)

    @property
    def num_sequences(self) -> int:
        """Sequences."""
        return len(self.lengths)

    @property
    def boundaries(self) -> list[int]:
        """Where each sequence begins in ``places``, and the end of the last: [N + 1]."""
        return [0, *itertools.accumulate(self.lengths)]

    def to(self, device: torch.device) -> PackedSequences:
        """Return the same on another device."""
        names = ("token_ids", "position_ids", "sequence_ids", "previous")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})


def pack_sequences(sequences: Sequence[Tokens]) -> PackedSequences:
    """Lay sequences end to end.

    Args:
        sequences: Token ids; each sequence has at least one.

    Returns:
        The packed sequences, on the host.

    Raises:
        AlgorithmError: No sequence, or an empty one.
    """
    return _pack([((), sequence) for sequence in sequences], [(0, 0)] * len(sequences))


def pack_responses(
    prompts: Iterable[tuple[int, ...]], responses: Iterable[Tokens], *, share_prompts: bool = False
) -> tuple[PackedSequences, torch.Tensor]:
    """Lay prompts, each with its response behind it, end to end.

    Args:
        prompts: Token ids of each prompt; at least one each, because the first token of a sequence has no probability.
        responses: Token ids of the response to each.
        share_prompts: Whether what prompts begin with lies in the pack once: whole prompts that are equal, and any part
            of ``MIN_SHARED`` tokens that an earlier prompt and its response begin with, as the contexts of the turns of
            an episode do. Under causal attention a token has the same hidden state in all sequences that share it, so
            gradients are exact.

    Returns:
        The packed sequences, and bool [T]: which tokens belong to responses.

    Raises:
        AlgorithmError: Numbers that differ, or an empty prompt.
    """
    pairs = list(zip(prompts, responses, strict=True))
    if not all(prompt for prompt, _ in pairs):
        raise AlgorithmError("pack_responses: every prompt needs at least one token, a begin token for example.")
    shared = [(0, 0)] * len(pairs)
    if share_prompts:
        shared = find_shared_prefixes([prompt for prompt, _ in pairs], [response for _, response in pairs])
    packed = _pack(pairs, shared)
    is_response = torch.zeros(packed.num_tokens, dtype=torch.bool)
    ends = packed.boundaries[1:]
    of_responses = [packed.places[end - len(rest) : end] for end, (_, rest) in zip(ends, pairs, strict=True)]
    is_response[torch.cat(of_responses)] = True
    return packed, is_response


def find_shared_prefixes(prompts: Sequence[Sequence[int]], responses: Sequence[Tokens]) -> list[SharedPrefix]:
    """Return what each prompt begins with that an earlier sequence, a prompt with its response, begins with too.

    A response is never shared, even if another one is equal: each is sampled, and trained on, by itself.

    Args:
        prompts: Token ids of each sequence's prompt.
        responses: Token ids of the response to each.

    Returns:
        For each sequence the number of an earlier one and the number of tokens, which is 0 below ``MIN_SHARED`` unless
        it is the whole prompt.
    """
    index = _PrefixTree()
    found: list[SharedPrefix] = []
    for number, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
        tokens = np.asarray(prompt, dtype=np.int64)
        source, count = index.longest(tokens)
        found.append((source, count) if count >= min(MIN_SHARED, len(tokens)) else (number, 0))
        index.add(np.concatenate([tokens, np.asarray(response, dtype=np.int64)]), number)
    return found


@dataclass(slots=True)
class _Edge:
    """Tokens that sequences of a tree have in common; ``number`` is that of the first of them."""

    tokens: IntArray
    number: int
    children: dict[int, _Edge] = field(default_factory=dict)


class _PrefixTree:
    """Sequences of tokens by their prefixes."""

    def __init__(self) -> None:
        self._root = _Edge(np.empty(0, dtype=np.int64), 0)

    def longest(self, tokens: IntArray) -> SharedPrefix:
        """Return a sequence that has the longest prefix in common with some tokens, and its length."""
        edge, _, count = self._descend(tokens)
        return edge.number, count

    def add(self, tokens: IntArray, number: int) -> None:
        """Add a sequence."""
        edge, within, count = self._descend(tokens)
        if count == len(tokens):
            return
        if within < len(edge.tokens):
            rest = _Edge(edge.tokens[within:], edge.number, edge.children)
            edge.tokens, edge.children = edge.tokens[:within], {int(rest.tokens[0]): rest}
        edge.children[int(tokens[count])] = _Edge(tokens[count:], number)

    def _descend(self, tokens: IntArray) -> tuple[_Edge, int, int]:
        """Return where some tokens leave the tree: the edge, the place within it, and that within the tokens."""
        edge, within, count = self._root, 0, 0
        while within == len(edge.tokens) and count < len(tokens) and int(tokens[count]) in edge.children:
            edge = edge.children[int(tokens[count])]
            size = min(len(edge.tokens), len(tokens) - count)
            differs = edge.tokens[:size] != tokens[count : count + size]
            within = int(differs.argmax()) if differs.any() else size
            count += within
        return edge, within, count


def _pack(pairs: Sequence[tuple[Sequence[int], Tokens]], shared: Sequence[SharedPrefix]) -> PackedSequences:
    """Lay sequences end to end, given as prefix and rest, without what they share with earlier ones."""
    lengths = tuple(len(prefix) + len(rest) for prefix, rest in pairs)
    if not lengths or min(lengths) < 1:
        raise AlgorithmError(
            f"pack_sequences: needs sequences of at least one token each, received lengths {list(lengths)}."
        )
    pieces: list[torch.Tensor] = []
    places: list[torch.Tensor] = []
    own: list[int] = []
    end = 0
    for (prefix, rest), (source, count) in zip(pairs, shared, strict=True):
        pieces += [_int64(prefix[count:]), _int64(rest)]
        own.append(len(prefix) + len(rest) - count)
        begins = torch.arange(end, end + own[-1])
        places.append(torch.cat([places[source][:count], begins]) if count else begins)
        end += own[-1]
    sizes = torch.tensor(lengths)
    where = torch.cat(places)
    positions = torch.arange(len(where)) - (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    # Shared tokens are written several times, with the same value each time.
    position_ids = torch.empty(end, dtype=torch.int64).index_copy(0, where, positions)
    before = where.roll(1).where(positions > 0, where)
    return PackedSequences(
        token_ids=torch.cat(pieces),
        position_ids=position_ids,
        sequence_ids=torch.arange(len(lengths)).repeat_interleave(torch.tensor(own)),
        previous=torch.empty_like(position_ids).index_copy(0, where, before),
        lengths=lengths,
        shared=tuple(length - count for length, count in zip(lengths, own, strict=True)),
        places=where,
    )


def _int64(tokens: Tokens) -> torch.Tensor:
    return torch.as_tensor(tokens, dtype=torch.int64)


def place(values: Sequence[torch.Tensor], where: torch.Tensor) -> torch.Tensor:
    """Lay what is known of each response's tokens next to the packed tokens.

    Args:
        values: One tensor [L] per sequence, for its response's tokens.
        where: bool [T]; which tokens belong to responses.

    Returns:
        [T] of the values' type, 0 elsewhere.

    Raises:
        AlgorithmError: The numbers of values and of tokens differ.
    """
    joined = torch.cat(list(values))
    if len(joined) != int(where.sum()):
        raise AlgorithmError(f"place: received {len(joined)} values for {int(where.sum())} tokens of responses.")
    placed = torch.zeros(where.shape, dtype=joined.dtype)
    placed[where] = joined
    return placed
