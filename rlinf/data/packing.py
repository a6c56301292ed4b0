"""Sequences of tokens laid end to end: what a language model trains on, without padding, and prompts once."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from rlinf.errors import AlgorithmError


@dataclass(frozen=True, slots=True)
class PackedSequences:
    """``N`` sequences of ``T`` tokens in all, one behind the other; what some begin with may lie there once for all.

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


def pack_sequences(sequences: Sequence[Sequence[int]]) -> PackedSequences:
    """Lay sequences end to end.

    Args:
        sequences: Token ids; each sequence has at least one.

    Returns:
        The packed sequences, on the host.

    Raises:
        AlgorithmError: No sequence, or an empty one.
    """
    return _pack([((), sequence) for sequence in sequences])


def pack_responses(
    prompts: Iterable[Sequence[int]], answers: Iterable[Sequence[int]], *, share_prompts: bool = False
) -> tuple[PackedSequences, torch.Tensor]:
    """Lay prompts, each with its answer behind it, end to end.

    Args:
        prompts: Token ids of each prompt; at least one each, because the first token of a sequence has no probability.
        answers: Token ids of the answer to each.
        share_prompts: Whether prompts that are equal lie in the pack once, before the first of their answers.

    Returns:
        The packed sequences, and bool [T]: which tokens belong to answers.

    Raises:
        AlgorithmError: Numbers that differ, or an empty prompt.
    """
    pairs = [(tuple(prompt), tuple(answer)) for prompt, answer in zip(prompts, answers, strict=True)]
    if not all(prompt for prompt, _ in pairs):
        raise AlgorithmError("pack_responses: every prompt needs at least one token, a begin token for example.")
    packed = _pack(pairs if share_prompts else [((), prompt + answer) for prompt, answer in pairs])
    is_response = torch.zeros(packed.num_tokens, dtype=torch.bool)
    ends = packed.boundaries[1:]
    of_answers = [packed.places[end - len(answer) : end] for end, (_, answer) in zip(ends, pairs, strict=True)]
    is_response[torch.cat(of_answers)] = True
    return packed, is_response


def _pack(pairs: Sequence[tuple[tuple[int, ...], Sequence[int]]]) -> PackedSequences:
    """Lay sequences end to end, given as what they may share with others and what they may not."""
    lengths = tuple(len(prefix) + len(rest) for prefix, rest in pairs)
    if not lengths or min(lengths) < 1:
        raise AlgorithmError(
            f"pack_sequences: needs sequences of at least one token each, received lengths {list(lengths)}."
        )
    token_ids: list[int] = []
    places: list[int] = []
    own: list[int] = []
    first_places: dict[tuple[int, ...], int] = {}
    for prefix, rest in pairs:
        start = first_places.setdefault(prefix, len(token_ids))
        is_first = start == len(token_ids)
        new = [*prefix, *rest] if is_first else rest
        if not is_first:
            places.extend(range(start, start + len(prefix)))
        places.extend(range(len(token_ids), len(token_ids) + len(new)))
        token_ids.extend(new)
        own.append(len(new))
    sizes = torch.tensor(lengths)
    where = torch.tensor(places)
    positions = torch.arange(len(places)) - (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    # Shared tokens are written several times, with the same value each time.
    position_ids = torch.empty(len(token_ids), dtype=torch.int64).index_copy(0, where, positions)
    before = where.roll(1).where(positions > 0, where)
    return PackedSequences(
        token_ids=torch.tensor(token_ids, dtype=torch.int64),
        position_ids=position_ids,
        sequence_ids=torch.arange(len(lengths)).repeat_interleave(torch.tensor(own)),
        previous=torch.empty_like(position_ids).index_copy(0, where, before),
        lengths=lengths,
        shared=tuple(length - count for length, count in zip(lengths, own, strict=True)),
        places=where,
    )


def place(values: Sequence[torch.Tensor], where: torch.Tensor) -> torch.Tensor:
    """Lay what is known of each answer's tokens next to the packed tokens.

    Args:
        values: One tensor [L] per sequence, for its answer's tokens.
        where: bool [T]; which tokens belong to answers.

    Returns:
        [T] of the values' type, 0 elsewhere.

    Raises:
        AlgorithmError: The numbers of values and of tokens differ.
    """
    joined = torch.cat(list(values))
    if len(joined) != int(where.sum()):
        raise AlgorithmError(f"place: received {len(joined)} values for {int(where.sum())} tokens of answers.")
    placed = torch.zeros(where.shape, dtype=joined.dtype)
    placed[where] = joined
    return placed
