"""Joining torch.distributed from a worker's environment, with gloo for host tensors and NCCL or its like for others."""

from __future__ import annotations

import datetime
import os

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, Store, TCPStore

from rlinf.placement.accelerator_kinds import collective_backend

_TIMEOUT = datetime.timedelta(minutes=30)


def join_process_group(device: torch.device, rank: int, world_size: int) -> None:
    """Make this process rank ``rank`` of ``world_size``; does nothing if it already is.

    Several ranks meet at ``MASTER_ADDR:MASTER_PORT``; a single one needs no network at all.

    Args:
        device: Decides which backends are set up.
        rank: This process.
        world_size: All processes.
    """
    if dist.is_initialized():
        return
    own = collective_backend(device.type)
    backend = "gloo" if own is None else f"cpu:gloo,{device.type}:{own}"
    store: Store
    if world_size == 1:
        store = HashStore()
    else:
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = TCPStore(host, port, world_size, is_master=rank == 0, timeout=_TIMEOUT)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=_TIMEOUT)


def leave_process_group() -> None:
    """Leave the process group, if this process is in one."""
    if dist.is_initialized():
        dist.destroy_process_group()
