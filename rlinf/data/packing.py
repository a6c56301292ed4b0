"""Sequences of tokens laid end to end: what a language model trains on, without padding."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from rlinf.errors import AlgorithmError


@dataclass(frozen=True, slots=True)
class PackedSequences:
    """``N`` sequences of ``T`` tokens in all, one behind the other.

    Whatever is known per token lies beside ``token_ids`` as a tensor [T]: its entry i is about token i.

    Attributes:
        token_ids: int64 [T].
        position_ids: int64 [T]; position within the sequence, from 0.
        sequence_ids: int64 [T]; number of the sequence, from 0.
        lengths: Tokens of each sequence, [N], on the host.
    """

    token_ids: torch.Tensor
    position_ids: torch.Tensor
    sequence_ids: torch.Tensor
    lengths: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        """Tokens of all sequences."""
        return sum(self.lengths)

    @property
    def num_sequences(self) -> int:
        """Sequences."""
        return len(self.lengths)

    @property
    def boundaries(self) -> list[int]:
        """Where each sequence begins, and the end of the last: [N + 1]."""
        return [0, *itertools.accumulate(self.lengths)]

    def to(self, device: torch.device) -> PackedSequences:
        """Return the same on another device."""
        return PackedSequences(
            token_ids=self.token_ids.to(device),
            position_ids=self.position_ids.to(device),
            sequence_ids=self.sequence_ids.to(device),
            lengths=self.lengths,
        )


def pack_sequences(sequences: Sequence[Sequence[int]]) -> PackedSequences:
    """Lay sequences end to end.

    Args:
        sequences: Token ids; each sequence has at least one.

    Returns:
        The packed sequences, on the host.

    Raises:
        AlgorithmError: No sequence, or an empty one.
    """
    lengths = tuple(len(sequence) for sequence in sequences)
    if not lengths or min(lengths) < 1:
        raise AlgorithmError(
            f"pack_sequences: needs sequences of at least one token each, received lengths {list(lengths)}."
        )
    sizes = torch.tensor(lengths)
    starts = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    return PackedSequences(
        token_ids=torch.tensor(list(itertools.chain.from_iterable(sequences)), dtype=torch.int64),
        position_ids=torch.arange(len(starts)) - starts,
        sequence_ids=torch.arange(len(lengths)).repeat_interleave(sizes),
        lengths=lengths,
    )


def pack_answers(
    prompts: Iterable[Sequence[int]], answers: Iterable[Sequence[int]]
) -> tuple[PackedSequences, torch.Tensor]:
    """Lay prompts, each with its answer behind it, end to end.

    Args:
        prompts: Token ids of each prompt; at least one each, because the first token of a sequence has no probability.
        answers: Token ids of the answer to each.

    Returns:
        The packed sequences, and bool [T]: which tokens belong to answers.

    Raises:
        AlgorithmError: Numbers that differ, or an empty prompt.
    """
    pairs = [(list(prompt), list(answer)) for prompt, answer in zip(prompts, answers, strict=True)]
    if not all(prompt for prompt, _ in pairs):
        raise AlgorithmError("pack_answers: every prompt needs at least one token, a begin token for example.")
    packed = pack_sequences([prompt + answer for prompt, answer in pairs])
    parts = torch.tensor([len(part) for pair in pairs for part in pair])
    return packed, torch.tensor([False, True]).repeat(len(pairs)).repeat_interleave(parts)


def place(values: Sequence[torch.Tensor], where: torch.Tensor) -> torch.Tensor:
    """Lay what is known of each answer's tokens beside the packed tokens.

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
