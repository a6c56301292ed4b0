"""Which sequences a rank computes, and in which forward pass: by tokens and by work, not by number.

An optimizer step is the same whatever is decided here: losses have global denominators, and advantages are computed
before anything is split. What changes is how long ranks wait for each other, and how much memory a pass takes.
"""

from __future__ import annotations

import math
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
    def of_decoder(cls, *, num_parameters: int, num_layers: int, attention_size: int) -> SequenceCost:
        """Return the costs of a decoder: 2 P operations per token, and 2 per layer and channel for a causal pair.

        Args:
            num_parameters: ``P``; of one token's forward pass, embeddings left out.
            num_layers: Decoder layers.
            attention_size: Channels of the attention's output: heads times their size, whatever the hidden size is.
        """
        return cls(quadratic=num_layers * attention_size / num_parameters)

    def of(self, length: int) -> float:
        """Return the work of a sequence of ``length`` tokens."""
        return length + self.quadratic * length * length


@dataclass(frozen=True, slots=True)
class Bundle:
    """Sequences that go through the model in one pass because what they begin with is computed once for all of them.

    Attributes:
        members: Positions of the sequences.
        tokens: Of all of them, the beginning counted for each: attention lays it out for each.
        cost: Work of all of them, the beginning counted once in the linear layers.
    """

    members: tuple[int, ...]
    tokens: int
    cost: float


@dataclass(slots=True)
class _Bin:
    """Bundles that go together."""

    bundles: list[Bundle]
    samples: int = 0
    tokens: int = 0
    cost: float = 0.0

    def add(self, bundle: Bundle) -> None:
        self.bundles.append(bundle)
        self.samples += len(bundle.members)
        self.tokens += bundle.tokens
        self.cost += bundle.cost


@dataclass(frozen=True, slots=True)
class _Budget:
    tokens: int | None = None
    samples: int | None = None

    def allows(self, part: _Bin, bundle: Bundle) -> bool:
        """Whether a bundle may be put to a part."""
        return (self.tokens is None or part.tokens + bundle.tokens <= self.tokens) and (
            self.samples is None or part.samples + len(bundle.members) <= self.samples
        )


def bundle_sequences(
    lengths: Sequence[int],
    *,
    prefixes: Sequence[Sequence[int]] | None = None,
    num_ranks: int = 1,
    max_tokens: int | None = None,
    max_samples: int | None = None,
    cost: SequenceCost | None = None,
) -> tuple[Bundle, ...]:
    """Put sequences that begin with the same tokens together, as far as that leaves ranks evenly at work.

    Args:
        lengths: Tokens of each sequence.
        prefixes: What each sequence begins with (its prompt), shorter than itself; None bundles nothing.
        num_ranks: Ranks that share the work. Several get no bundle with more than a quarter of a rank's part.
        max_tokens: Largest number of tokens in a pass; None has no bound.
        max_samples: Largest number of sequences in a pass; None has no bound.
        cost: Work of a sequence; None takes its tokens.

    Returns:
        Bundles, each within the budget unless it is a single sequence, in the order of their first members.
    """
    cost = cost or SequenceCost()
    singles = tuple(Bundle((i,), length, cost.of(length)) for i, length in enumerate(lengths))
    if prefixes is None:
        return singles
    largest = sum(bundle.cost for bundle in singles) / num_ranks / 4 if num_ranks > 1 else math.inf
    budget = _Budget(max_tokens, max_samples)
    bundles: list[Bundle] = []
    numbers: dict[tuple[int, ...], int] = {}
    for single, prefix in zip(singles, map(tuple, prefixes), strict=True):
        number = numbers.get(prefix)
        if number is not None:
            grown = _grown(bundles[number], single, len(prefix))
            if grown.cost <= largest and budget.allows(_Bin([]), grown):
                bundles[number] = grown
                continue
        numbers[prefix] = len(bundles)
        bundles.append(single)
    return tuple(bundles) if len(bundles) >= num_ranks else singles


def _grown(bundle: Bundle, single: Bundle, shared: int) -> Bundle:
    """Return a bundle with one more sequence, so many of whose tokens are in it already."""
    return Bundle(
        members=bundle.members + single.members,
        tokens=bundle.tokens + single.tokens,
        cost=bundle.cost + single.cost - shared,
    )


def assign_to_ranks(bundles: Sequence[Bundle], num_ranks: int) -> tuple[tuple[Bundle, ...], ...]:
    """Spread a minibatch over data-parallel ranks.

    Always the most expensive bundle left goes to the rank with least work so far (LPT), so that no rank has more than
    the mean and one bundle.

    Args:
        bundles: Of the minibatch.
        num_ranks: Ranks.

    Returns:
        For each rank its bundles, in the order of the minibatch; no rank goes without.

    Raises:
        AlgorithmError: Fewer bundles than ranks.
    """
    if num_ranks < 1 or len(bundles) < num_ranks:
        raise AlgorithmError(
            f"assign_to_ranks: {len(bundles)} sequences cannot give each of {num_ranks} ranks one. Raise "
            "actor.global_batch_size, or train on fewer ranks."
        )
    parts = _spread(bundles, num_ranks, _Budget())
    assert parts is not None
    return tuple(tuple(sorted(part.bundles, key=lambda bundle: bundle.members)) for part in parts)


def plan_token_batches(
    bundles_by_rank: Sequence[Sequence[Bundle]], *, max_tokens: int | None = None, max_samples: int | None = None
) -> list[list[MicroBatch]]:
    """Cut each rank's bundles into micro-batches within a budget, as many on every rank.

    The number is what the rank that needs most needs; others spread theirs over as many passes, and one with fewer
    bundles than passes fills up with padding. The micro-batches of a rank are of about equal work and in descending
    order of it, because ranks wait for each other in every pass.

    Args:
        bundles_by_rank: Of each rank; every rank has at least one.
        max_tokens: Largest number of tokens in a pass (``runner.max_tokens_per_mbs``); None has no bound.
        max_samples: Largest number of sequences in a pass (``actor.micro_batch_size``); None has no bound.

    Returns:
        For each rank its micro-batches; ``indices`` are the members of bundles.

    Raises:
        AlgorithmError: A sequence longer than the budget, no budget at all, or a rank without sequences.
    """
    longest = max((bundle.tokens for bundles in bundles_by_rank for bundle in bundles), default=0)
    if not all(bundles_by_rank) or (max_tokens is None and max_samples is None) or (max_samples or 1) < 1:
        raise AlgorithmError(
            f"plan_token_batches: received ranks with {[len(bundles) for bundles in bundles_by_rank]} sequences, "
            f"max_tokens={max_tokens}, max_samples={max_samples}; every rank needs sequences, and one budget is needed."
        )
    if max_tokens is not None and longest > max_tokens:
        raise AlgorithmError(
            f"A sequence has {longest} tokens, more than runner.max_tokens_per_mbs={max_tokens}: it fits no "
            "micro-batch. Raise the budget to the longest prompt and answer together, or lower data.max_prompt_length "
            "or algorithm.sampling_params.max_new_tokens."
        )
    budget = _Budget(max_tokens, max_samples)
    fewest = [_first_fit(bundles, budget) for bundles in bundles_by_rank]
    number = max(len(parts) for parts in fewest)
    return [
        _micro_batches(bundles, parts, number, budget) for bundles, parts in zip(bundles_by_rank, fewest, strict=True)
    ]


def _micro_batches(bundles: Sequence[Bundle], fewest: list[_Bin], number: int, budget: _Budget) -> list[MicroBatch]:
    parts = _spread(bundles, min(number, len(bundles)), budget)
    parts = sorted(parts or fewest, key=lambda part: -part.cost)
    batches = [MicroBatch(torch.tensor(sorted(i for bundle in part.bundles for i in bundle.members))) for part in parts]
    shortest = min(bundles, key=lambda bundle: bundle.tokens)
    filler = MicroBatch(torch.tensor(shortest.members[:1]), is_padding=True)
    return batches + [filler] * (number - len(batches))


def _first_fit(bundles: Sequence[Bundle], budget: _Budget) -> list[_Bin]:
    """Return few bins within the budget: each bundle, longest first, goes to the first bin that has room."""
    parts: list[_Bin] = []
    for bundle in sorted(bundles, key=lambda bundle: -bundle.tokens):
        part = next((part for part in parts if budget.allows(part, bundle)), None)
        if part is None:
            part = _Bin([])
            parts.append(part)
        part.add(bundle)
    return parts


def _spread(bundles: Sequence[Bundle], number: int, budget: _Budget) -> list[_Bin] | None:
    """Return ``number`` bins of about equal work within the budget, or None where this does not find any."""
    parts = [_Bin([]) for _ in range(number)]
    for bundle in sorted(bundles, key=lambda bundle: -bundle.cost):
        allowed = [part for part in parts if budget.allows(part, bundle)]
        if not allowed:
            return None
        min(allowed, key=lambda part: part.cost).add(bundle)
    return parts
