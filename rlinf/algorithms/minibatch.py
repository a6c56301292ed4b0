"""Minibatches of optimizer steps, and micro-batches of forward passes: which rank computes which sample when.

Losses have global denominators, and advantages are computed before anything is split: an optimizer step is the same for
any number of ranks and any micro-batches. What a plan decides is how long ranks wait for each other, and how much
memory a pass takes.

- Chunks of actions all cost the same. Samples have global numbers 0..num_samples-1 that do not depend on how many ranks
  there are; each rank computes the part of a minibatch that it owns, in passes of a fixed size
  (``plan_micro_batches``).
- Sequences of tokens differ, and every rank holds all of them: they are balanced over ranks (``assign_to_ranks``) and
  packed (``plan_packed_micro_batches``) by tokens and by work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from rlinf.data.shared_prefixes import SharedPrefix, Tokens, find_shared_prefixes
from rlinf.errors import AlgorithmError
from rlinf.utils.seeding import derive_seed


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Samples of one forward and backward pass on one rank.

    Attributes:
        indices: int64 [n], positions among this rank's own samples.
        is_padding: True where the rank has run out of samples before others have: ``indices`` then names one sample
            that is computed so that collectives match, and ``masked`` clears its masks. A rank that owns no sample at
            all has n = 0.
    """

    indices: torch.Tensor
    is_padding: bool = False

    def masked(self, mask: torch.Tensor) -> torch.Tensor:
        """Return the rows ``indices`` of ``mask`` (bool [N, ...]), all false for padding."""
        rows = mask[self.indices.to(mask.device)]
        return torch.zeros_like(rows) if self.is_padding else rows


@dataclass(frozen=True, slots=True)
class SampleOwnership:
    """Which rank owns which sample; every rank holds the same table.

    Attributes:
        rank_of: int64 [num_samples]; owner of each global sample.
        position_of: int64 [num_samples]; its position among the owner's samples.
        num_ranks: Ranks, also those that own nothing.
    """

    rank_of: torch.Tensor
    position_of: torch.Tensor
    num_ranks: int

    @property
    def num_samples(self) -> int:
        """Samples over all ranks."""
        return self.rank_of.numel()

    @classmethod
    def contiguous(cls, counts: Sequence[int]) -> SampleOwnership:
        """Build the table for ranks that own consecutive ranges: rank 0 the first ``counts[0]`` samples, and so on."""
        return cls.from_ids(torch.split(torch.arange(sum(counts)), list(counts)))

    @classmethod
    def from_ids(cls, ids: Sequence[torch.Tensor]) -> SampleOwnership:
        """Build the table from each rank's global sample numbers.

        Args:
            ids: One int64 [N_rank] per rank: the global numbers of its samples, in the order in which it holds them.

        Returns:
            The table.

        Raises:
            AlgorithmError: The numbers are not 0..num_samples-1, each once.
        """
        joined = torch.cat([part.cpu() for part in ids])
        if not torch.equal(joined.sort().values, torch.arange(joined.numel())):
            raise AlgorithmError(
                f"Global sample numbers of all ranks must be 0..{joined.numel() - 1}, each exactly once; ranks own "
                f"{[part.numel() for part in ids]} samples."
            )
        rank_of, position_of = torch.empty_like(joined), torch.empty_like(joined)
        for rank, part in enumerate(ids):
            rank_of[part.cpu()] = rank
            position_of[part.cpu()] = torch.arange(part.numel())
        return cls(rank_of=rank_of, position_of=position_of, num_ranks=len(ids))


def plan_minibatches(
    num_samples: int, global_batch_size: int, *, seed: int, step: int, epoch: int
) -> list[torch.Tensor]:
    """Shuffle all samples of all ranks and cut them into minibatches, one per optimizer step.

    Every rank computes the same plan: the shuffle depends on the arguments and on nothing else, and differs from step
    to step and from epoch to epoch.

    Args:
        num_samples: Samples over all ranks.
        global_batch_size: Samples per optimizer step over all ranks.
        seed: The run's seed; the same on all ranks.
        step: The run's step.
        epoch: Update epoch within the step.

    Returns:
        int64 tensors of global sample numbers, [global_batch_size] each; the last is shorter where it does not divide.

    Raises:
        AlgorithmError: No samples, or a batch size below 1.
    """
    if num_samples < 1 or global_batch_size < 1:
        raise AlgorithmError(
            f"plan_minibatches needs samples and a batch size; received num_samples={num_samples}, "
            f"global_batch_size={global_batch_size}."
        )
    generator = torch.Generator().manual_seed(derive_seed(seed, "minibatches", step, epoch))
    return list(torch.split(torch.randperm(num_samples, generator=generator), global_batch_size))


def plan_micro_batches(
    minibatch: torch.Tensor, ownership: SampleOwnership, *, rank: int, micro_batch_size: int
) -> list[MicroBatch]:
    """Split a rank's part of a minibatch into micro-batches of a fixed size, the same number on every rank.

    Args:
        minibatch: int64 [M], global sample numbers.
        ownership: Who owns which sample.
        rank: The rank to plan for.
        micro_batch_size: Samples per forward pass on one rank.

    Returns:
        At least one micro-batch; the number is what the rank with most samples needs, and the others' lists are filled
        up with padding.

    Raises:
        AlgorithmError: A micro-batch size below 1, or an unknown rank.
    """
    if micro_batch_size < 1 or not 0 <= rank < ownership.num_ranks:
        raise AlgorithmError(
            f"plan_micro_batches: received micro_batch_size={micro_batch_size}, rank={rank}; a size of at least 1 and "
            f"a rank of 0..{ownership.num_ranks - 1} are needed."
        )
    owners = ownership.rank_of[minibatch]
    largest = int(torch.bincount(owners, minlength=ownership.num_ranks).max())
    num_micro_batches = max(-(-largest // micro_batch_size), 1)
    own = ownership.position_of[minibatch[owners == rank]]
    batches = [MicroBatch(part) for part in torch.split(own, micro_batch_size) if part.numel()]
    owns_any = bool((ownership.rank_of == rank).any())
    filler = MicroBatch(torch.zeros(int(owns_any), dtype=torch.int64), is_padding=True)
    return batches + [filler] * (num_micro_batches - len(batches))


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
            attention_size: Channels of the attention's output, heads times head size; may differ from the hidden size.
        """
        return cls(quadratic=num_layers * attention_size / num_parameters)

    def of(self, length: int) -> float:
        """Return the work of a sequence of ``length`` tokens."""
        return length + self.quadratic * length * length


@dataclass(frozen=True, slots=True)
class PrefixGroup:
    """Sequences with a common prefix (a prompt), which one forward pass computes once for all of them.

    Attributes:
        indices: Positions of the sequences.
        tokens: Of all of them, the prefix counted for each: attention lays it out for each.
        cost: Work of all of them, the prefix counted once in the linear layers.
    """

    indices: tuple[int, ...]
    tokens: int
    cost: float


@dataclass(slots=True)
class _Bin:
    """Groups of one forward pass, or of one rank."""

    groups: list[PrefixGroup]
    samples: int = 0
    tokens: int = 0
    cost: float = 0.0

    def add(self, group: PrefixGroup) -> None:
        self.groups.append(group)
        self.samples += len(group.indices)
        self.tokens += group.tokens
        self.cost += group.cost


@dataclass(frozen=True, slots=True)
class _Budget:
    tokens: int | None = None
    samples: int | None = None

    def allows(self, part: _Bin, group: PrefixGroup) -> bool:
        """Return whether a part has room for a group."""
        return (self.tokens is None or part.tokens + group.tokens <= self.tokens) and (
            self.samples is None or part.samples + len(group.indices) <= self.samples
        )


def group_by_prefix(
    lengths: Sequence[int],
    *,
    prefixes: Sequence[Sequence[int]] | None = None,
    responses: Sequence[Tokens] | None = None,
    episodes: Sequence[int] | None = None,
    num_ranks: int = 1,
    max_tokens: int | None = None,
    max_samples: int | None = None,
    cost: SequenceCost | None = None,
) -> tuple[PrefixGroup, ...]:
    """Group sequences by their prefix, as far as that leaves the work of ranks balanced.

    Args:
        lengths: Tokens of each sequence.
        prefixes: Prefix of each sequence (its prompt), shorter than itself; None groups nothing.
        responses: Tokens behind each prefix, which a later prefix may begin with; None leaves them out.
        episodes: Number of the episode of each sequence; those of one stay together, even beyond a bound. None
            separates sequences freely.
        num_ranks: Ranks that share the work. With several, a group has at most a quarter of a rank's part.
        max_tokens: Largest number of tokens in a pass; None has no bound.
        max_samples: Largest number of sequences in a pass; None has no bound.
        cost: Work of a sequence; None takes its tokens.

    Returns:
        Groups, each within the budget unless it is a single sequence or episode, in the order of their first sequences.
    """
    cost = cost or SequenceCost()
    singles = tuple(PrefixGroup((i,), length, cost.of(length)) for i, length in enumerate(lengths))
    shared = None if prefixes is None else find_shared_prefixes(prefixes, responses or [()] * len(prefixes))
    parts = singles if episodes is None else _by_episode(singles, episodes, shared)
    if shared is None:
        return parts
    largest = sum(group.cost for group in singles) / num_ranks / 4 if num_ranks > 1 else math.inf
    budget = _Budget(max_tokens, max_samples)
    groups: list[PrefixGroup] = []
    # By the number of a sequence: the newest group with its prefix, and how much of the prefix that has.
    places: dict[int, tuple[int, int]] = {}
    for part in parts:
        source, count = shared[part.indices[0]]
        number, available = places.get(source, (-1, 0))
        if number >= 0 and count:
            extended = _extended(groups[number], part, min(count, available))
            if extended.cost <= largest and budget.allows(_Bin([]), extended):
                groups[number] = extended
                places |= {index: (number, lengths[index]) for index in part.indices}
                continue
        places |= {index: (len(groups), lengths[index]) for index in part.indices}
        if count:
            places[source] = (len(groups), count)
        groups.append(part)
    return tuple(groups) if len(groups) >= num_ranks else parts


def _by_episode(
    singles: Sequence[PrefixGroup], episodes: Sequence[int], shared: Sequence[SharedPrefix] | None
) -> tuple[PrefixGroup, ...]:
    """Return a group for each episode, what its branches share counted once."""
    groups: dict[int, PrefixGroup] = {}
    for number, (single, episode) in enumerate(zip(singles, episodes, strict=True)):
        group = groups.get(episode)
        source, count = (number, 0) if shared is None else shared[number]
        if group is None:
            groups[episode] = single
        else:
            groups[episode] = _extended(group, single, count if source in group.indices else 0)
    return tuple(groups.values())


def _extended(group: PrefixGroup, part: PrefixGroup, shared: int) -> PrefixGroup:
    """Return a group with further sequences, ``shared`` tokens of which are in it already."""
    return PrefixGroup(
        indices=group.indices + part.indices,
        tokens=group.tokens + part.tokens,
        cost=group.cost + part.cost - shared,
    )


def assign_to_ranks(groups: Sequence[PrefixGroup], num_ranks: int) -> tuple[tuple[PrefixGroup, ...], ...]:
    """Balance the groups of a minibatch over data-parallel ranks.

    The most expensive group left goes to the rank with least work so far (LPT), so that no rank has more than the mean
    plus one group.

    Args:
        groups: Of the minibatch.
        num_ranks: Ranks.

    Returns:
        For each rank its groups, at least one, in the order of the minibatch.

    Raises:
        AlgorithmError: Fewer groups than ranks.
    """
    if num_ranks < 1 or len(groups) < num_ranks:
        raise AlgorithmError(
            f"assign_to_ranks: {len(groups)} sequences cannot give each of {num_ranks} ranks one. Raise "
            "actor.global_batch_size, or train on fewer ranks."
        )
    parts = _spread(groups, num_ranks, _Budget())
    assert parts is not None
    return tuple(tuple(sorted(part.groups, key=lambda group: group.indices)) for part in parts)


def plan_packed_micro_batches(
    groups_by_rank: Sequence[Sequence[PrefixGroup]], *, max_tokens: int | None = None, max_samples: int | None = None
) -> list[list[MicroBatch]]:
    """Pack each rank's groups into micro-batches within a budget, the same number on every rank.

    The number is that of the rank that needs most; others spread theirs over as many passes, and one with fewer groups
    than passes fills up with padding. The micro-batches of a rank are of about equal work and in descending order of
    it, because ranks wait for each other in every pass.

    Args:
        groups_by_rank: Of each rank; every rank has at least one.
        max_tokens: Largest number of tokens in a pass (``runner.max_tokens_per_mbs``); None has no bound.
        max_samples: Largest number of sequences in a pass (``actor.micro_batch_size``); None has no bound.

    Returns:
        For each rank its micro-batches; ``indices`` are those of groups.

    Raises:
        AlgorithmError: A sequence longer than the budget, no budget at all, or a rank without sequences.
    """
    longest = max((group.tokens for groups in groups_by_rank for group in groups), default=0)
    if not all(groups_by_rank) or (max_tokens is None and max_samples is None) or (max_samples or 1) < 1:
        raise AlgorithmError(
            f"plan_packed_micro_batches: received ranks with {[len(groups) for groups in groups_by_rank]} sequences, "
            f"max_tokens={max_tokens}, max_samples={max_samples}; every rank needs sequences, and one budget is needed."
        )
    if max_tokens is not None and longest > max_tokens:
        if any(group.tokens > max_tokens and len(group.indices) > 1 for groups in groups_by_rank for group in groups):
            raise AlgorithmError(
                f"The branches of an episode have {longest} tokens, more than runner.max_tokens_per_mbs={max_tokens}, "
                "and the loss needs all of them in one micro-batch. Raise the budget, or choose "
                "algorithm.loss_agg_func=token-mean with a loss of single tokens."
            )
        raise AlgorithmError(
            f"A sequence has {longest} tokens, more than runner.max_tokens_per_mbs={max_tokens}: it fits no "
            "micro-batch. Raise the budget to the longest prompt and response together, or lower "
            "data.max_prompt_length or algorithm.sampling_params.max_new_tokens."
        )
    budget = _Budget(max_tokens, max_samples)
    fewest = [_first_fit(groups, budget) for groups in groups_by_rank]
    number = max(len(parts) for parts in fewest)
    return [_micro_batches(groups, parts, number, budget) for groups, parts in zip(groups_by_rank, fewest, strict=True)]


def _micro_batches(groups: Sequence[PrefixGroup], fewest: list[_Bin], number: int, budget: _Budget) -> list[MicroBatch]:
    parts = _spread(groups, min(number, len(groups)), budget)
    parts = sorted(parts or fewest, key=lambda part: -part.cost)
    batches = [MicroBatch(torch.tensor(sorted(i for group in part.groups for i in group.indices))) for part in parts]
    shortest = min(groups, key=lambda group: group.tokens)
    filler = MicroBatch(torch.tensor(shortest.indices[:1]), is_padding=True)
    return batches + [filler] * (number - len(batches))


def _first_fit(groups: Sequence[PrefixGroup], budget: _Budget) -> list[_Bin]:
    """Return few bins within the budget: each group, longest first, goes to the first bin that has room."""
    parts: list[_Bin] = []
    for group in sorted(groups, key=lambda group: -group.tokens):
        part = next((part for part in parts if budget.allows(part, group)), None)
        if part is None:
            part = _Bin([])
            parts.append(part)
        part.add(group)
    return parts


def _spread(groups: Sequence[PrefixGroup], number: int, budget: _Budget) -> list[_Bin] | None:
    """Return ``number`` bins of about equal work within the budget, or None where this does not find any."""
    parts = [_Bin([]) for _ in range(number)]
    for group in sorted(groups, key=lambda group: -group.cost):
        allowed = [part for part in parts if budget.allows(part, group)]
        if not allowed:
            return None
        min(allowed, key=lambda part: part.cost).add(group)
    return parts
