"""Buckets that stay on a GPU: sealed there, checked there or on the host, and taken by another process."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from multiprocessing.connection import Connection

import pytest
import torch

from rlinf.errors import WeightSyncError
from rlinf.hybrid_engines.weights.bucket import Manifest, WeightUpdate, check_bucket, fill_buckets, plan_buckets
from rlinf.hybrid_engines.weights.checksum import checksum
from rlinf.scheduler.comm.device_transfers import CudaPlatform

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def fill_on(device: str) -> tuple[Manifest, list[torch.Tensor], dict[str, torch.Tensor]]:
    """Publish weights in bfloat16 in buckets of a device; return them, too."""
    generator = torch.Generator().manual_seed(0)
    weights = {f"layers.{number}": torch.randn(200 + number, 31, generator=generator) for number in range(9)}
    plan = plan_buckets(weights.items(), version=3, bucket_bytes=1 << 15, dtype=torch.bfloat16)
    manifest = replace(plan, checksum_kind="words")
    source = ((name, tensor.to(device)) for name, tensor in weights.items())
    # What lies between tensors is the same everywhere.
    buckets = fill_buckets(manifest, source, lambda count: torch.zeros(count, dtype=torch.uint8, device=device))
    return manifest, list(buckets), {name: tensor.bfloat16() for name, tensor in weights.items()}


@pytest.mark.parametrize("device", DEVICES)
def test_a_checksum_is_the_same_on_every_device(device: str) -> None:
    words = torch.arange(5_000_000, dtype=torch.int64).mul_(0x0123456789ABCDEF).view(torch.uint8)
    assert checksum(words.to(device), seed=9, kind="words") == checksum(words, seed=9, kind="words")
    for one, other in zip(fill_on(device)[1], fill_on("cpu")[1], strict=True):
        assert torch.equal(one.cpu(), other)


@pytest.mark.parametrize("device", DEVICES)
def test_buckets_are_checked_where_they_are(device: str) -> None:
    manifest, buckets, weights = fill_on(device)
    update = WeightUpdate(manifest, current_version=2)
    found = dict(pair for index, bucket in enumerate(buckets) for pair in update.take(index, bucket))
    assert update.finish() == 3
    for name, tensor in weights.items():
        assert found[name].device.type == device
        assert torch.equal(found[name].cpu(), tensor)
    check_bucket(manifest, 0, buckets[0].cpu())
    buckets[0][17] ^= 2
    for bucket in (buckets[0], buckets[0].cpu()):
        with pytest.raises(WeightSyncError, match="bucket 0 .* checksum"):
            check_bucket(manifest, 0, bucket)


def take_buckets(pipe: Connection) -> None:
    """Open buckets of another process, and return the sums of the weights in them."""
    platform, device = CudaPlatform(), torch.device("cuda", 0)
    manifest, handles = pipe.recv()
    update = WeightUpdate(manifest, current_version=2)
    taken = [update.take(index, platform.open(handle, device)) for index, handle in enumerate(handles)]
    pipe.send((update.finish(), {name: float(tensor.double().sum()) for each in taken for name, tensor in each}))
    pipe.recv()


@pytest.mark.gpu
@pytest.mark.timeout(300)
def test_another_process_takes_them_without_a_copy() -> None:
    platform = CudaPlatform()
    manifest, buckets, weights = fill_on("cuda")
    near, far = (context := multiprocessing.get_context("spawn")).Pipe()
    process = context.Process(target=take_buckets, args=(far,))
    process.start()
    try:
        platform.settle(torch.device("cuda", 0))()
        near.send((manifest, [platform.share(bucket) for bucket in buckets]))
        assert near.poll(120), "the other process does not answer"
        version, sums = near.recv()
        assert version == 3
        assert sums == pytest.approx({name: float(tensor.double().sum()) for name, tensor in weights.items()})
        near.send("done")
        process.join(60)
    finally:
        process.kill()
        process.join()
    assert process.exitcode == 0
