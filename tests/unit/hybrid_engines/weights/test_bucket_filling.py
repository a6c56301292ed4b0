"""Tensors come to their places in a bucket, in the bucket's precision, however many parts they lie in."""

from __future__ import annotations

import pytest
import torch

from rlinf.hybrid_engines.weights import checksum as checksums
from rlinf.hybrid_engines.weights import work_sharing
from rlinf.hybrid_engines.weights.bucket_filling import fill_and_hash
from rlinf.hybrid_engines.weights.checksum import PART_BYTES, hash_parts

LONG = PART_BYTES // 4 * 5 + 17
TENSORS = {
    "short": torch.arange(5.0),
    "long": torch.arange(float(LONG)).sub_(LONG // 2),
    "none": torch.zeros(0),
    "across": torch.arange(300_000, dtype=torch.int64),
    "turned": torch.arange(90_000.0).view(300, 300).T,
    "one": torch.tensor(2.5),
}


@pytest.mark.parametrize("num_cores", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_every_tensor_is_where_it_belongs(num_cores: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksums, "_MIN_PARTS", 1)
    monkeypatch.setattr(work_sharing.os, "sched_getaffinity", lambda _: range(num_cores))
    placed, end = [], 0
    for tensor in TENSORS.values():
        sent = dtype if tensor.is_floating_point() else tensor.dtype
        placed.append((end, sent, tensor))
        end += -(-tensor.numel() * sent.itemsize // 64) * 64
    # What the memory held before stays between the tensors.
    content = torch.full((end,), 0xA5, dtype=torch.uint8)
    digest = fill_and_hash(content, placed, seed=3)
    assert digest == hash_parts(content.numpy(), seed=3)
    covered = torch.zeros(end, dtype=torch.bool)
    for offset, sent, tensor in placed:
        num_bytes = tensor.numel() * sent.itemsize
        view = content[offset : offset + num_bytes].view(sent).view(tensor.shape)
        assert torch.equal(view, tensor.to(sent))
        covered[offset : offset + num_bytes] = True
    assert bool((content[~covered] == 0xA5).all())


def test_a_part_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_sharing.os, "sched_getaffinity", lambda _: range(1))
    written: list[tuple[int, int]] = []

    source = torch.ones(3 * PART_BYTES // 4)
    copies = torch.Tensor.copy_

    def copy(self: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        written.append((self.numel(), given.numel()))
        return copies(self, given)

    monkeypatch.setattr(torch.Tensor, "copy_", copy)
    fill_and_hash(torch.zeros(3 * PART_BYTES // 2, dtype=torch.uint8), [(0, torch.bfloat16, source)], seed=0)
    assert written == [(PART_BYTES // 2,) * 2, (PART_BYTES // 4,) * 2]


def test_masters_that_need_gradients_are_copied_and_stay() -> None:
    weight = torch.nn.Parameter(torch.arange(100.0))
    content = torch.zeros(448, dtype=torch.uint8)
    fill_and_hash(content, [(0, torch.float32, weight)], seed=0)
    assert torch.equal(content[:400].view(torch.float32), weight.detach())
    assert weight.requires_grad
    content.zero_()
    assert float(weight.detach()[99]) == 99
