"""Which samples make an optimizer step, and which of them a rank computes in which forward pass.

Samples have global numbers 0..num_samples-1 that do not depend on how many ranks there are. A minibatch is drawn from
all of them; each rank computes the part that it owns, which may be more or less than its share. Together with global
denominators this makes an optimizer step the same for any number of ranks and any size of micro-batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

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
    """Cut a rank's part of a minibatch into micro-batches, as many on every rank.

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
