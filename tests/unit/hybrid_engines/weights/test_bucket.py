"""Buckets arrive whole and undamaged, or nothing of them is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from rlinf.errors import WeightSyncError
from rlinf.hybrid_engines.weights.bucket import (
    WeightReceiver,
    WeightUpdate,
    check_bucket,
    fill_buckets,
    plan_buckets,
    view_entry,
)
from tests.unit.hybrid_engines.packing import pack_weights, zeros


class Model(nn.Module):
    def __init__(self, fill: float) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 3)
        self.scale = nn.Parameter(torch.full((7,), fill, dtype=torch.bfloat16))
        self.register_buffer("count", torch.tensor(fill, dtype=torch.float64))
        nn.init.constant_(self.linear.weight, fill)
        nn.init.constant_(self.linear.bias, fill)


@pytest.mark.parametrize("bucket_bytes", [1, 64, 100, 1 << 20])
def test_every_tensor_arrives_whatever_the_bucket_size(bucket_bytes: int) -> None:
    source, target = Model(2.5), Model(0.0)
    manifest, buckets = pack_weights(source.state_dict().items(), version=4, bucket_bytes=bucket_bytes)
    receiver = WeightReceiver(target)
    receiver.load(manifest, buckets)
    assert receiver.version == 4
    for name, tensor in source.state_dict().items():
        assert torch.equal(target.state_dict()[name], tensor), name


def test_the_receiver_keeps_its_own_precision() -> None:
    source, target = Model(1.5), Model(0.0).to(torch.float16)
    WeightReceiver(target).load(*pack_weights(source.state_dict().items(), version=0, bucket_bytes=1 << 20))
    assert target.linear.weight.dtype == torch.float16
    assert float(target.linear.weight[0, 0]) == 1.5


def test_a_bucket_is_there_before_the_next_tensor_is_asked_for() -> None:
    weights = {"a": torch.arange(16.0), "b": torch.ones(40), "c": torch.zeros(3, 2)}
    manifest = plan_buckets(weights.items(), version=0, bucket_bytes=1)
    asked = []

    def source() -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in weights.items():
            asked.append(name)
            yield name, tensor

    for index, bucket in enumerate(fill_buckets(manifest, source(), zeros)):
        assert torch.equal(view_entry(manifest.entries[index], bucket), weights[asked[-1]])
        assert len(asked) == index + 1


def test_a_plan_needs_no_values() -> None:
    weights = Model(1.0).state_dict()
    described = {name: torch.empty(t.shape, dtype=t.dtype, device="meta") for name, t in weights.items()}
    plans = [plan_buckets(each.items(), version=3, bucket_bytes=64) for each in (weights, described)]
    assert plans[0] == plans[1]


def test_a_bucket_of_another_version_or_number_is_refused() -> None:
    weights = {"a": torch.ones(4), "b": torch.ones(4)}
    manifest, buckets = pack_weights(weights.items(), version=1, bucket_bytes=1)
    check_bucket(manifest, 1, buckets[1])
    for version, bucket in ((2, buckets[0]), (1, buckets[1])):
        with pytest.raises(WeightSyncError, match="bucket 0 .* checksum"):
            check_bucket(replace(manifest, version=version), 0, bucket)


def refuse(change: Callable[[Any, Any], tuple[Any, Any]], message: str) -> None:
    source, target = Model(2.0), Model(0.0)
    manifest, buckets = pack_weights(source.state_dict().items(), version=1, bucket_bytes=64)
    manifest, buckets = change(manifest, buckets)
    with pytest.raises(WeightSyncError, match=message):
        WeightReceiver(target).load(manifest, buckets)
    assert all(float(t.float().abs().max()) == 0 for t in target.state_dict().values())


def test_a_missing_bucket_is_refused_and_nothing_is_loaded() -> None:
    refuse(lambda m, b: (m, b[:-1]), "Received")


def test_a_damaged_bucket_is_refused_and_nothing_is_loaded() -> None:
    def flip(manifest: Any, buckets: Any) -> tuple[Any, Any]:
        buckets[-1][0] ^= 1
        return manifest, buckets

    refuse(flip, "checksum")


def test_weights_of_another_model_are_refused() -> None:
    other, target = nn.Linear(5, 3), Model(0.0)
    with pytest.raises(WeightSyncError, match="missing"):
        WeightReceiver(target).load(*pack_weights(other.state_dict().items(), version=0, bucket_bytes=64))


def test_an_older_version_is_refused() -> None:
    receiver = WeightReceiver(Model(0.0))
    weights = Model(1.0).state_dict()
    receiver.load(*pack_weights(weights.items(), version=5, bucket_bytes=64))
    with pytest.raises(WeightSyncError, match="version 4"):
        receiver.load(*pack_weights(weights.items(), version=4, bucket_bytes=64))


def test_weights_that_lack_one_of_the_models_are_refused() -> None:
    model = nn.Linear(2, 2)
    manifest, buckets = pack_weights([("weight", torch.zeros(2, 2))], version=1, bucket_bytes=64)
    before = model.weight.clone()
    with pytest.raises(WeightSyncError, match=r"missing \['bias'\]"):
        WeightReceiver(model).load(manifest, buckets)
    assert torch.equal(model.weight, before)


def make_update(
    version: int = 3, current_version: int = 2
) -> tuple[dict[str, torch.Tensor], list[torch.Tensor], WeightUpdate]:
    weights = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(5, dtype=torch.bfloat16), "c": torch.zeros(40)}
    manifest, buckets = pack_weights(weights.items(), version=version, bucket_bytes=32)
    return weights, buckets, WeightUpdate(manifest, current_version=current_version)


def test_tensors_come_out_as_they_went_in_whatever_the_order() -> None:
    weights, buckets, update = make_update()
    assert len(buckets) == 3
    received = {}
    for index in (2, 0, 1):
        received.update(update.take(index, buckets[index]))
    update.finish()
    assert received.keys() == weights.keys()
    assert all(torch.equal(received[name], weights[name]) for name in weights)


def test_the_missing_bucket_is_named() -> None:
    _, buckets, update = make_update()
    update.take(0, buckets[0])
    update.take(2, buckets[2])
    with pytest.raises(WeightSyncError, match="missing: 1"):
        update.finish()


def test_a_damaged_bucket_counts_as_missing() -> None:
    _, buckets, update = make_update()
    with pytest.raises(WeightSyncError, match="bucket 0 .* checksum"):
        update.take(0, buckets[0] + 1)
    with pytest.raises(WeightSyncError, match="missing: 0, 1, 2"):
        update.finish()


@pytest.mark.parametrize("index", [-1, 3])
def test_a_bucket_that_was_not_announced_is_refused(index: int) -> None:
    _, buckets, update = make_update()
    with pytest.raises(WeightSyncError, match=f"bucket {index}"):
        update.take(index, buckets[0])


def test_an_update_of_an_older_version_is_refused_and_of_an_equal_one_is_not() -> None:
    with pytest.raises(WeightSyncError, match="version 1 arrived after version 2"):
        make_update(version=1)
    make_update(version=2)


LARGE = {
    "long": torch.arange(400_001.0),
    "short": torch.ones(3, dtype=torch.bfloat16),
    "wide": torch.arange(700_000.0).view(7, -1).T,
    "none": torch.zeros(0),
    "one": torch.tensor(2.5),
    "count": torch.tensor([3, 1 << 40]),
}
"""Longer than a block, not contiguous, empty, without dimensions, not floating."""


@pytest.mark.parametrize("dtype", [None, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bucket_bytes", [1, 1 << 22])
def test_tensors_are_published_in_another_precision(dtype: torch.dtype | None, bucket_bytes: int) -> None:
    before = {name: tensor.clone() for name, tensor in LARGE.items()}
    manifest = plan_buckets(LARGE.items(), version=1, bucket_bytes=bucket_bytes, dtype=dtype)
    update = WeightUpdate(manifest, current_version=0)
    received: dict[str, torch.Tensor] = {}
    for index, bucket in enumerate(fill_buckets(manifest, LARGE.items(), zeros)):
        received.update(update.take(index, bucket))
    update.finish()
    for name, tensor in LARGE.items():
        sent = tensor.dtype if dtype is None or not tensor.is_floating_point() else dtype
        assert received[name].dtype == sent
        assert torch.equal(received[name], tensor.to(sent))
        assert torch.equal(tensor, before[name])
        assert tensor.dtype == before[name].dtype


def test_each_owner_fills_its_own_buckets() -> None:
    weights = {name: torch.full((number,), float(number)) for number, name in enumerate("abcdefgh", start=1)}
    owners = [0, 1, 0, 2, 1, 0, 2, 0]
    manifest = plan_buckets(weights.items(), version=1, bucket_bytes=200, owners=owners)
    assert sorted(set(manifest.bucket_owners)) == [0, 1, 2]
    assert [entry.bucket for entry in manifest.entries] == sorted(entry.bucket for entry in manifest.entries)
    update = WeightUpdate(manifest, current_version=0)
    received: dict[str, torch.Tensor] = {}
    for rank in range(3):
        own = [named for named, owner in zip(weights.items(), owners, strict=True) if owner == rank]
        indices = [index for index, owner in enumerate(manifest.bucket_owners) if owner == rank]
        buckets = fill_buckets(manifest, own, zeros, owner=rank)
        for index, bucket in zip(indices, buckets, strict=True):
            taken = dict(update.take(index, bucket))
            assert {owners[list(weights).index(name)] for name in taken} == {rank}
            received |= taken
    update.finish()
    assert all(torch.equal(received[name], tensor) for name, tensor in weights.items())


def test_a_rank_takes_part_to_the_end_when_it_has_sent_its_last_bucket() -> None:
    steps = []

    def source() -> Iterator[tuple[str, torch.Tensor]]:
        yield "a", torch.ones(1)
        steps.append("the others' last tensor")

    manifest = plan_buckets({"a": torch.ones(1)}.items(), version=1, bucket_bytes=70)
    assert len(list(fill_buckets(manifest, source(), zeros, owner=0))) == 1
    assert steps


def test_seals_that_have_been_compared_are_not_compared_again() -> None:
    weights, buckets, update = make_update()
    checked = WeightUpdate(replace(update.manifest, is_checked=True), current_version=2)
    for index, bucket in enumerate(buckets):
        bucket[-1] += 1
        assert all(torch.equal(tensor, weights[name]) for name, tensor in checked.take(index, bucket))


@pytest.mark.parametrize("bucket_bytes", [1, 1 << 22])
def test_buckets_of_a_device_are_sealed_and_checked_there(bucket_bytes: int) -> None:
    plan = plan_buckets(LARGE.items(), version=1, bucket_bytes=bucket_bytes, dtype=torch.bfloat16)
    manifest = replace(plan, checksum_kind="words")
    buckets = list(fill_buckets(manifest, LARGE.items(), zeros))
    update = WeightUpdate(manifest, current_version=0)
    received: dict[str, torch.Tensor] = {}
    for index, bucket in enumerate(buckets):
        received.update(update.take(index, bucket))
        with pytest.raises(WeightSyncError, match=f"bucket {index} .* checksum"):
            check_bucket(plan, index, bucket)
        bucket[0] ^= 4
        with pytest.raises(WeightSyncError, match=f"bucket {index} .* checksum"):
            check_bucket(manifest, index, bucket)
        bucket[0] ^= 4
    update.finish()
    for name, tensor in LARGE.items():
        assert torch.equal(received[name], tensor.to(received[name].dtype)), name


def test_buckets_of_a_device_never_come_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = replace(plan_buckets(LARGE.items(), version=1, bucket_bytes=1 << 22), checksum_kind="words")
    for forbidden in ("numpy", "cpu"):
        monkeypatch.setattr(torch.Tensor, forbidden, None)
    for index, bucket in enumerate(fill_buckets(manifest, LARGE.items(), zeros)):
        check_bucket(manifest, index, bucket)
