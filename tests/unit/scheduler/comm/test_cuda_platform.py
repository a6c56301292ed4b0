"""CUDA IPC: another process on the same device looks at a tensor's own memory."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection

import pytest
import torch

from rlinf.scheduler.comm.device_transfers import CudaPlatform


def add_one(pipe: Connection) -> None:
    """Open a tensor, change it, and return its sum and the device's name."""
    platform, device = CudaPlatform(), torch.device("cuda", 0)
    tensor = platform.open(pipe.recv(), device)
    tensor.add_(1.0)
    platform.settle(device)()
    pipe.send((float(tensor.sum()), platform.identity(device)))
    pipe.recv()


@pytest.mark.gpu
def test_another_process_opens_the_memory_itself() -> None:
    platform, device = CudaPlatform(), torch.device("cuda", 0)
    tensor = torch.arange(1000.0, device=device)
    near, far = (context := multiprocessing.get_context("spawn")).Pipe()
    process = context.Process(target=add_one, args=(far,))
    process.start()
    try:
        platform.settle(device)()
        near.send(platform.share(tensor))
        assert near.poll(120), "the other process does not answer"
        total, identity = near.recv()
        assert identity == platform.identity(device)
        assert total == float(tensor.sum()) == sum(range(1000)) + 1000
        near.send("done")
        process.join(60)
    finally:
        process.kill()
        process.join()
    assert process.exitcode == 0
