"""Which rank hands on which weights, so that none gathers the whole model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Shard


def choose_owners(sizes: Sequence[int], num_ranks: int) -> list[int]:
    """Return the owner of each tensor: in turn the rank that owns the fewest bytes so far, the first of them.

    Args:
        sizes: Bytes of the tensors.
        num_ranks: Number of ranks.
    """
    owned = [0] * num_ranks
    owners = []
    for size in sizes:
        owner = owned.index(min(owned))
        owned[owner] += size
        owners.append(owner)
    return owners


def gather_to(owner: int, tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor whole on its owner and on device ``meta`` elsewhere; all ranks call this together.

    Args:
        owner: Rank among those that the tensor is sharded over.
        tensor: Sharded along one dimension by ``fully_shard``, or not sharded: then every rank has it anyway.
    """
    if not isinstance(tensor, DTensor):
        return tensor.detach()
    if tensor.device_mesh.ndim != 1 or not isinstance(placement := tensor.placements[0], Shard):
        return tensor.full_tensor().detach()
    mesh, dim, length = tensor.device_mesh, placement.dim, tensor.shape[placement.dim]
    # Parts are equally long but for the last ones, which may be empty.
    part_length = -(-length // mesh.size())
    part = tensor.to_local().detach()
    padded = part.new_zeros([*part.shape[:dim], part_length, *part.shape[dim + 1 :]])
    padded.narrow(dim, 0, part.shape[dim]).copy_(part)
    parts = None
    if mesh.get_local_rank() == owner:
        parts = [torch.empty_like(padded) for _ in range(mesh.size())]
    dist.gather(padded, parts, group=mesh.get_group(), group_dst=owner)
    if parts is None:
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
    return torch.cat(parts, dim).narrow(dim, 0, length)
