"""Which sequences a rank computes, and in which forward pass: by tokens and by work, not by number.

An optimizer step is the same whatever is decided here: losses have global denominators, and advantages are computed
before anything is split. What changes is how long ranks wait for each other, and how much memory a pass takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from rlinf.algorithms.minibatch import MicroBatch
from rlinf.errors import AlgorithmError


@dataclass(frozen=True, slots=True)
class SequenceCost:
    """The work of a sequence of L tokens, in units of a token's work in the linear layers: L + quadratic * L^2.

    Attributes:
        quadratic: Work of attention for a pair of tokens.
    """

    quadratic: float = 0.0

    @classmethod
    def of_decoder(cls, *, num_parameters: int, num_layers: int, hidden_size: int) -> SequenceCost:
        """Return the costs of a decoder: 2 P operations per token, and 2 per layer and channel for a causal pair.

        Args:
            num_parameters: ``P``; of one token's forward pass, embeddings left out.
            num_layers: Decoder layers.
            hidden_size: Channels of the attention's output.
        """
        return cls(quadratic=num_layers * hidden_size / num_parameters)

    def of(self, length: int) -> float:
        """Return the work of a sequence of ``length`` tokens."""
        return length + self.quadratic * length * length


@dataclass(slots=True)
class _Bin:
    """Sequences that go together."""

    members: list[int]
    tokens: int = 0
    cost: float = 0.0

    def add(self, member: int, tokens: int, cost: float) -> None:
        self.members.append(member)
        self.tokens += tokens
        self.cost += cost


@dataclass(frozen=True, slots=True)
class _Budget:
    tokens: int | None
    samples: int | None

    def allows(self, part: _Bin, tokens: int) -> bool:
        fits = self.tokens is None or part.tokens + tokens <= self.tokens
        return fits and (self.samples is None or len(part.members) < self.samples)


def assign_to_ranks(
    lengths: Sequence[int], num_ranks: int, *, cost: SequenceCost | None = None
) -> tuple[tuple[int, ...], ...]:
    """Spread a minibatch's sequences over data-parallel ranks.

    Args:
        lengths: Tokens of each sequence.
        num_ranks: Ranks.
        cost: Balance by this: always the most expensive sequence left to the rank with least work so far (LPT), so that
            no rank has more than the mean and one sequence. None cuts the minibatch into equal numbers, in order.

    Returns:
        For each rank the positions of its sequences in ``lengths``, ascending; no rank goes without.

    Raises:
        AlgorithmError: Fewer sequences than ranks.
    """
    if num_ranks < 1 or len(lengths) < num_ranks:
        raise AlgorithmError(
            f"assign_to_ranks: {len(lengths)} sequences cannot give each of {num_ranks} ranks one. Raise "
            "actor.global_batch_size, or train on fewer ranks."
        )
    if cost is None:
        bounds = [len(lengths) * rank // num_ranks for rank in range(num_ranks + 1)]
        return tuple(tuple(range(bounds[rank], bounds[rank + 1])) for rank in range(num_ranks))
    parts = _spread(range(len(lengths)), lengths, num_ranks, cost, _Budget(None, None))
    assert parts is not None
    return tuple(tuple(sorted(part.members)) for part in parts)


def plan_token_batches(
    lengths_by_rank: Sequence[Sequence[int]],
    *,
    max_tokens: int | None = None,
    max_samples: int | None = None,
    cost: SequenceCost | None = None,
) -> list[list[MicroBatch]]:
    """Cut each rank's sequences into micro-batches within a budget, as many on every rank.

    The number is what the rank that needs most needs; others spread theirs over as many passes, and one with fewer
    sequences than passes fills up with padding. The micro-batches of a rank are of about equal work and in descending
    order of it, because ranks wait for each other in every pass.

    Args:
        lengths_by_rank: Tokens of each rank's sequences; every rank has at least one.
        max_tokens: Largest number of tokens in a pass (``runner.max_tokens_per_mbs``); None has no bound.
        max_samples: Largest number of sequences in a pass (``actor.micro_batch_size``); None has no bound.
        cost: Work of a sequence; None takes its tokens.

    Returns:
        For each rank its micro-batches; ``indices`` are positions among the rank's sequences.

    Raises:
        AlgorithmError: A sequence longer than the budget, no budget at all, or a rank without sequences.
    """
    longest = max((length for lengths in lengths_by_rank for length in lengths), default=0)
    if not all(lengths_by_rank) or (max_tokens is None and max_samples is None) or (max_samples or 1) < 1:
        raise AlgorithmError(
            f"plan_token_batches: received ranks with {[len(lengths) for lengths in lengths_by_rank]} sequences, "
            f"max_tokens={max_tokens}, max_samples={max_samples}; every rank needs sequences, and one budget is needed."
        )
    if max_tokens is not None and longest > max_tokens:
        raise AlgorithmError(
            f"A sequence has {longest} tokens, more than runner.max_tokens_per_mbs={max_tokens}: it fits no "
            "micro-batch. Raise the budget to the longest prompt and answer together, or lower data.max_prompt_length "
            "or algorithm.sampling_params.max_new_tokens."
        )
    budget, cost = _Budget(max_tokens, max_samples), cost or SequenceCost()
    fewest = [_first_fit(lengths, budget, cost) for lengths in lengths_by_rank]
    number = max(len(parts) for parts in fewest)
    return [
        _micro_batches(lengths, parts, number, budget, cost)
        for lengths, parts in zip(lengths_by_rank, fewest, strict=True)
    ]


def _micro_batches(
    lengths: Sequence[int], fewest: list[_Bin], number: int, budget: _Budget, cost: SequenceCost
) -> list[MicroBatch]:
    parts = _spread(range(len(lengths)), lengths, min(number, len(lengths)), cost, budget)
    parts = sorted(parts or fewest, key=lambda part: -part.cost)
    batches = [MicroBatch(torch.tensor(sorted(part.members))) for part in parts]
    shortest = min(range(len(lengths)), key=lambda position: lengths[position])
    filler = MicroBatch(torch.tensor([shortest]), is_padding=True)
    return batches + [filler] * (number - len(batches))


def _first_fit(lengths: Sequence[int], budget: _Budget, cost: SequenceCost) -> list[_Bin]:
    """Return few bins within the budget: each sequence, longest first, goes to the first bin that has room."""
    parts: list[_Bin] = []
    for member in sorted(range(len(lengths)), key=lambda position: -lengths[position]):
        tokens = lengths[member]
        part = next((part for part in parts if budget.allows(part, tokens)), None)
        if part is None:
            part = _Bin([])
            parts.append(part)
        part.add(member, tokens, cost.of(tokens))
    return parts


def _spread(
    members: Sequence[int], lengths: Sequence[int], number: int, cost: SequenceCost, budget: _Budget
) -> list[_Bin] | None:
    """Return ``number`` bins of about equal work within the budget, or None where this does not find any."""
    parts = [_Bin([]) for _ in range(number)]
    for member in sorted(members, key=lambda position: -lengths[position]):
        allowed = [part for part in parts if budget.allows(part, lengths[member])]
        if not allowed:
            return None
        min(allowed, key=lambda part: part.cost).add(member, lengths[member], cost.of(lengths[member]))
    return parts
