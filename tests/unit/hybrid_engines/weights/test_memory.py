"""Memory is used again when nothing looks at it any more, and never before."""

from __future__ import annotations

import torch
from torch import nn

from rlinf.hybrid_engines.weights.memory import BucketMemory


def test_memory_is_used_again_once_all_views_are_gone() -> None:
    memory = BucketMemory()
    bucket = memory.allocate(64)
    address = bucket.data_ptr()
    parameter = nn.Parameter(torch.zeros(4))
    parameter.data = bucket[16:32].view(torch.float32)
    del bucket
    assert memory.allocate(64).data_ptr() != address, "a parameter lies in it"
    parameter.data = torch.zeros(4)
    addresses = {memory.allocate(64).data_ptr() for _ in range(5)}
    held = [memory.allocate(64) for _ in range(2)]
    assert address in {tensor.data_ptr() for tensor in held}
    assert len(addresses | {tensor.data_ptr() for tensor in held}) == 2
    assert memory.allocate(65).data_ptr() != address


def test_what_is_spare_can_be_given_back() -> None:
    memory = BucketMemory()
    held, spare = memory.allocate(1 << 20), memory.allocate(1 << 20)
    held.fill_(3)
    del spare
    memory.clear()
    assert not any(memory._spare.values())
    assert int(held.sum()) == 3 << 20
