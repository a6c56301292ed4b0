"""Sequences of tokens laid end to end: what a language model trains on, without padding, and prompts once."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch

from rlinf.errors import AlgorithmError

Tokens: TypeAlias = "Sequence[int] | torch.Tensor"
"""Token ids, [L]; of integers of any size."""


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
    return _pack([((), sequence) for sequence in sequences], share=False)


def pack_responses(
    prompts: Iterable[tuple[int, ...]], responses: Iterable[Tokens], *, share_prompts: bool = False
) -> tuple[PackedSequences, torch.Tensor]:
    """Lay prompts, each with its response behind it, end to end.

    Args:
        prompts: Token ids of each prompt; at least one each, because the first token of a sequence has no probability.
        responses: Token ids of the response to each.
        share_prompts: Whether prompts that are equal lie in the pack once, before the first of their responses.

    Returns:
        The packed sequences, and bool [T]: which tokens belong to responses.

    Raises:
        AlgorithmError: Numbers that differ, or an empty prompt.
    """
    pairs = list(zip(prompts, responses, strict=True))
    if not all(prompt for prompt, _ in pairs):
        raise AlgorithmError("pack_responses: every prompt needs at least one token, a begin token for example.")
    packed = _pack(pairs, share=share_prompts)
    is_response = torch.zeros(packed.num_tokens, dtype=torch.bool)
    ends = packed.boundaries[1:]
    of_responses = [packed.places[end - len(rest) : end] for end, (_, rest) in zip(ends, pairs, strict=True)]
    is_response[torch.cat(of_responses)] = True
    return packed, is_response


def _pack(pairs: Sequence[tuple[tuple[int, ...], Tokens]], *, share: bool) -> PackedSequences:
    """Lay sequences end to end, given as what they may share with others and what they may not."""
    lengths = tuple(len(prefix) + len(rest) for prefix, rest in pairs)
    if not lengths or min(lengths) < 1:
        raise AlgorithmError(
            f"pack_sequences: needs sequences of at least one token each, received lengths {list(lengths)}."
        )
    pieces: list[torch.Tensor] = []
    places: list[torch.Tensor] = []
    own: list[int] = []
    first_places: dict[Hashable, int] = {}
    end = 0
    for number, (prefix, rest) in enumerate(pairs):
        start = first_places.setdefault(tuple(prefix) if share else number, end)
        is_first = start == end
        count = len(rest) + (len(prefix) if is_first else 0)
        if is_first:
            pieces.append(_int64(prefix))
        else:
            places.append(torch.arange(start, start + len(prefix)))
        pieces.append(_int64(rest))
        places.append(torch.arange(end, end + count))
        own.append(count)
        end += count
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
