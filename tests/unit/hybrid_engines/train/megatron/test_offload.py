"""What is taken to the host comes back to the same memory, behind views that have stayed."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("megatron.core")

from rlinf.hybrid_engines.train.megatron.offload import HostMemory


def test_storages_are_freed_once_and_come_back() -> None:
    buffer, other = torch.arange(12.0), torch.arange(3, dtype=torch.int64)
    view, empty = buffer[4:8].view(2, 2), torch.empty(0)
    expected = view.clone()
    host = HostMemory()
    host.take([buffer, view, other, empty])
    host.take([buffer])
    assert buffer.untyped_storage().size() == other.untyped_storage().size() == 0
    host.give_back()
    host.give_back()
    assert torch.equal(view, expected)
    assert torch.equal(buffer, torch.arange(12.0))
    assert other.tolist() == [0, 1, 2]
    buffer.add_(1)
    assert torch.equal(view, expected + 1)
