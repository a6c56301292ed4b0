"""Owners share the bytes of a model, and a tensor is gathered to its owner alone."""

from __future__ import annotations

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from rlinf.hybrid_engines.train.owners import choose_owners, gather_to
from tests.unit.hybrid_engines.train.rank_processes import run_ranks


@pytest.mark.parametrize(
    ("sizes", "num_ranks", "owners"),
    [([], 2, []), ([5, 4, 3], 1, [0, 0, 0]), ([8, 1, 1, 1, 9], 2, [0, 1, 1, 1, 1]), ([2, 2, 2, 2], 3, [0, 1, 2, 0])],
)
def test_the_rank_with_the_fewest_bytes_owns_the_next_tensor(
    sizes: list[int], num_ranks: int, owners: list[int]
) -> None:
    assert choose_owners(sizes, num_ranks) == owners


def test_many_tensors_are_shared_evenly() -> None:
    sizes = [1 + (7 * number) % 13 for number in range(200)]
    owners = choose_owners(sizes, 4)
    owned = [sum(size for size, owner in zip(sizes, owners, strict=True) if owner == rank) for rank in range(4)]
    assert max(owned) - min(owned) <= max(sizes)


def gather(rank: int) -> list[str]:
    """Gather tensors of which the ranks have unequal parts, or none, to each rank; return what is wrong."""
    mesh = init_device_mesh("cpu", (3,))
    wrong = []
    for shape, dim in (((7, 2), 0), ((1, 4), 0), ((2, 5), 1), ((6,), 0)):
        whole = torch.arange(float(torch.Size(shape).numel())).view(shape)
        sharded = distribute_tensor(whole, mesh, [Shard(dim)])
        for owner in range(3):
            found = gather_to(owner, sharded)
            is_right = torch.equal(found, whole) if owner == rank else found.is_meta and found.shape == whole.shape
            wrong += [] if is_right else [f"{shape} to {owner}"]
        if not torch.equal(gather_to(1, distribute_tensor(whole, mesh, [Replicate()])), whole):
            wrong.append(f"{shape} replicated")
    return wrong


def test_a_tensor_is_whole_on_its_owner_and_nowhere_else() -> None:
    assert run_ranks(3, gather) == [[], [], []]


def test_what_is_not_sharded_is_whole_everywhere() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    found = gather_to(5, weight)
    assert found.data_ptr() == weight.data_ptr()
    assert not found.requires_grad
