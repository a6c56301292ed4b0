import pytest
import torch
from torch import nn

from rlinf.errors import WeightSyncError
from rlinf.hybrid_engines.weights.bucket import WeightReceiver, pack_weights


class Model(nn.Module):
    def __init__(self, fill):
        super().__init__()
        self.linear = nn.Linear(5, 3)
        self.scale = nn.Parameter(torch.full((7,), fill, dtype=torch.bfloat16))
        self.register_buffer("count", torch.tensor(fill, dtype=torch.float64))
        nn.init.constant_(self.linear.weight, fill)
        nn.init.constant_(self.linear.bias, fill)


@pytest.mark.parametrize("bucket_bytes", [1, 64, 100, 1 << 20])
def test_every_tensor_arrives_whatever_the_bucket_size(bucket_bytes):
    source, target = Model(2.5), Model(0.0)
    manifest, buckets = pack_weights(source.state_dict().items(), version=4, bucket_bytes=bucket_bytes)
    receiver = WeightReceiver(target)
    receiver.load(manifest, buckets)
    assert receiver.version == 4
    for name, tensor in source.state_dict().items():
        assert torch.equal(target.state_dict()[name], tensor), name


def test_the_receiver_keeps_its_own_precision():
    source, target = Model(1.5), Model(0.0).to(torch.float16)
    WeightReceiver(target).load(*pack_weights(source.state_dict().items(), version=0, bucket_bytes=1 << 20))
    assert target.linear.weight.dtype == torch.float16
    assert float(target.linear.weight[0, 0]) == 1.5


def test_buckets_that_nobody_reads_any_more_are_written_to_again():
    _, first = pack_weights(Model(1.0).state_dict().items(), version=0, bucket_bytes=64)
    manifest, again = pack_weights(Model(2.5).state_dict().items(), version=1, bucket_bytes=64, used=first)
    assert [bucket.data_ptr() for bucket in again] == [bucket.data_ptr() for bucket in first]
    target = Model(0.0)
    WeightReceiver(target).load(manifest, again)
    assert all(torch.equal(target.state_dict()[name], t) for name, t in Model(2.5).state_dict().items())


@pytest.mark.parametrize("bucket_bytes", [1, 1 << 20])
def test_buckets_of_another_size_are_not_written_to(bucket_bytes):
    _, first = pack_weights(Model(1.0).state_dict().items(), version=0, bucket_bytes=64)
    before = [bucket.clone() for bucket in first]
    wide = {name: torch.cat((t.reshape(-1), t.reshape(-1))).repeat(32) for name, t in Model(2.5).state_dict().items()}
    _, again = pack_weights(wide.items(), version=1, bucket_bytes=bucket_bytes, used=first)
    assert not {bucket.data_ptr() for bucket in again} & {bucket.data_ptr() for bucket in first}
    assert all(map(torch.equal, first, before))


def refuse(change, message):
    source, target = Model(2.0), Model(0.0)
    manifest, buckets = pack_weights(source.state_dict().items(), version=1, bucket_bytes=64)
    manifest, buckets = change(manifest, buckets)
    with pytest.raises(WeightSyncError, match=message):
        WeightReceiver(target).load(manifest, buckets)
    assert all(float(t.float().abs().max()) == 0 for t in target.state_dict().values())


def test_a_missing_bucket_is_refused_and_nothing_is_loaded():
    refuse(lambda m, b: (m, b[:-1]), "Received")


def test_a_damaged_bucket_is_refused_and_nothing_is_loaded():
    def flip(manifest, buckets):
        buckets[-1][0] ^= 1
        return manifest, buckets

    refuse(flip, "checksum")


def test_weights_of_another_model_are_refused():
    other, target = nn.Linear(5, 3), Model(0.0)
    with pytest.raises(WeightSyncError, match="missing"):
        WeightReceiver(target).load(*pack_weights(other.state_dict().items(), version=0, bucket_bytes=64))


def test_an_older_version_is_refused():
    receiver = WeightReceiver(Model(0.0))
    weights = Model(1.0).state_dict()
    receiver.load(*pack_weights(weights.items(), version=5, bucket_bytes=64))
    with pytest.raises(WeightSyncError, match="version 4"):
        receiver.load(*pack_weights(weights.items(), version=4, bucket_bytes=64))
