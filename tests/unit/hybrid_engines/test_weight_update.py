import pytest
import torch

from rlinf.errors import WeightSyncError
from rlinf.hybrid_engines.weights.update import WeightUpdate
from tests.unit.hybrid_engines.packing import pack_weights


def make(version=3, current_version=2):
    weights = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(5, dtype=torch.bfloat16), "c": torch.zeros(40)}
    manifest, buckets = pack_weights(weights.items(), version=version, bucket_bytes=32)
    return weights, buckets, WeightUpdate(manifest, current_version=current_version)


def test_tensors_come_out_as_they_went_in_whatever_the_order():
    weights, buckets, update = make()
    assert len(buckets) == 3
    received = {}
    for index in (2, 0, 1):
        received.update(update.take(index, buckets[index]))
    update.finish()
    assert received.keys() == weights.keys()
    assert all(torch.equal(received[name], weights[name]) for name in weights)


def test_the_missing_bucket_is_named():
    _, buckets, update = make()
    update.take(0, buckets[0])
    update.take(2, buckets[2])
    with pytest.raises(WeightSyncError, match="missing: 1"):
        update.finish()


def test_a_damaged_bucket_counts_as_missing():
    _, buckets, update = make()
    with pytest.raises(WeightSyncError, match="bucket 0 .* checksum"):
        update.take(0, buckets[0] + 1)
    with pytest.raises(WeightSyncError, match="missing: 0, 1, 2"):
        update.finish()


@pytest.mark.parametrize("index", [-1, 3])
def test_a_bucket_that_was_not_announced_is_refused(index):
    _, buckets, update = make()
    with pytest.raises(WeightSyncError, match=f"bucket {index}"):
        update.take(index, buckets[0])


def test_an_older_version_is_refused_and_an_equal_one_is_not():
    with pytest.raises(WeightSyncError, match="version 1 arrived after version 2"):
        make(version=1)
    make(version=2)
