"""Parked tensors and the three ways to fetch them, with host memory in the place of an accelerator's."""

import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn, cast
from unittest.mock import MagicMock

import pytest
import torch
import torch.distributed as dist
from sample_workers import Sample

from rlinf.config.schema.cluster import ClusterConfig
from rlinf.errors import ClusterError, WorkerDiedError
from rlinf.hybrid_engines.weights.bucket import WeightUpdate, fill_buckets, plan_buckets
from rlinf.scheduler import Cluster, PackedPlacementStrategy
from rlinf.scheduler.comm.device_transfers import CollectiveGroupOptions, CudaPlatform, DeviceTransfers
from rlinf.scheduler.comm.endpoint import Endpoint
from rlinf.scheduler.comm.serialization import decode, encode
from rlinf.scheduler.comm.transport import new_keys, remove_socket_folder
from tests.unit.hybrid_engines.packing import zeros

SHARED = {}


class HostPlatform:
    """Plays a device: gloo in the place of NCCL, a table of this process in the place of CUDA IPC."""

    device_type = "cpu"

    def __init__(self, name: str) -> None:
        self.name = name
        self.opened = 0
        self.groups = 0
        self.options: list[CollectiveGroupOptions] = []

    def in_use(self) -> bool:
        return True

    def local(self) -> torch.device | None:
        return torch.device("cpu") if self.name else None

    def identity(self, device: torch.device | None) -> str:
        return self.name or "host"

    def settle(self, device: torch.device | None) -> Callable[[], None]:
        return lambda: None

    def make_group(self, store: Any, rank: int, given: CollectiveGroupOptions) -> dist.ProcessGroup:
        self.groups += 1
        self.options.append(given)
        options = dist.ProcessGroupGloo._Options()
        options._devices = [dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
        options._timeout = timedelta(seconds=60)
        return cast("dist.ProcessGroup", dist.ProcessGroupGloo(store, rank, 2, options))

    def share(self, tensor: torch.Tensor) -> int:
        SHARED[len(SHARED)] = tensor
        return len(SHARED) - 1

    def open(self, handle: Any, device: torch.device | None) -> Any:
        self.opened += 1
        return SHARED[handle]


class Side:
    """A process with a device of the given name; none without a name."""

    def __init__(self, namespace: str, keys: tuple[bytes, bytes], device: str | None, node: str = "n0") -> None:
        self.endpoint = Endpoint(namespace=namespace, node_id=node, keys=keys, listen_ip=None)
        self.platform = HostPlatform(device)
        folder = Path(self.endpoint.info.ipc).parent
        self.devices = DeviceTransfers(self.endpoint, folder, self.platform, park_bytes=1024)

    def encode_for(
        self, other: Any, obj: dict[str, Any] | torch.Tensor, options: CollectiveGroupOptions | None = None
    ) -> list[bytes]:
        return [bytes(frame) for frame in encode(obj, self.devices.parker(other.endpoint.info, options))]

    def decode(self, frames: Any) -> Any:
        return decode(frames, self.devices.fetch)

    def die_for(self, other: Any) -> None:
        error = WorkerDiedError("it is gone", group="g", rank=0)
        other.endpoint.peer_died(self.endpoint.info.uid, error)
        other.devices.peer_died(self.endpoint.info.uid)


@pytest.fixture
def make() -> Iterator[Callable[..., Any]]:
    namespace, keys, sides = uuid.uuid4().hex[:8], new_keys(), []

    def side(device: str | None, node: str = "n0") -> Any:
        sides.append(Side(namespace, keys, device, node))
        return sides[-1]

    yield side
    for entry in sides:
        entry.devices.close()
        entry.endpoint.close()
    remove_socket_folder(namespace)
    SHARED.clear()


@pytest.mark.parametrize("device", ["gpu-a", "gpu-b", None], ids=["same device", "other device", "no device"])
def test_tensors_arrive_equal_by_every_way(make: Callable[..., Any], device: str | None) -> None:
    left, right = make("gpu-a"), make(device)
    weights = torch.nn.Parameter(torch.randn(40, 30))
    sent = {
        "a": torch.arange(4000).reshape(20, 200).t(),
        "b": [torch.randn(33, 17, dtype=torch.float64).to(torch.bfloat16), "text"],
        "small": torch.ones(3),
        "weights": weights,
    }
    frames = left.encode_for(right, sent)
    assert sum(map(len, frames)) < 3000, "large tensors do not travel in the message"
    assert left.devices.num_parked == 3
    expected = {"a": sent["a"].clone(), "b": sent["b"][0].clone(), "weights": weights.detach().clone()}
    sent["a"].zero_()
    with torch.no_grad():
        weights.zero_()
    got = right.decode(frames)
    assert torch.equal(got["a"], expected["a"])
    assert torch.equal(got["b"][0], expected["b"])
    assert got["b"][1] == "text"
    assert got["small"].tolist() == [1, 1, 1]
    assert isinstance(got["weights"], torch.nn.Parameter)
    assert torch.equal(got["weights"], expected["weights"])
    assert left.devices.num_parked == 0
    assert (right.platform.opened, right.platform.groups) == {"gpu-a": (3, 0), "gpu-b": (0, 1)}.get(device, (0, 0))


@pytest.mark.parametrize("device", ["gpu-a", "gpu-b", None], ids=["same device", "other device", "no device"])
def test_buckets_of_weights_arrive_checked_by_every_way(make: Callable[..., Any], device: str | None) -> None:
    left, right = make("gpu-a"), make(device)
    weights = {"a": torch.randn(700, 3), "b": torch.randn(1200), "c": torch.arange(400)}
    plan = plan_buckets(weights.items(), version=5, bucket_bytes=8000, dtype=torch.bfloat16)
    manifest = replace(plan, checksum_kind="words")
    update = WeightUpdate(right.decode(left.encode_for(right, manifest)), current_version=4)
    found: dict[str, torch.Tensor] = {}
    for index, bucket in enumerate(fill_buckets(manifest, weights.items(), zeros)):
        frames = left.encode_for(right, bucket)
        # What is parked is a copy: the sender fills its memory again.
        bucket.zero_()
        found |= update.take(index, right.decode(frames))
    assert update.finish() == 5
    assert all(torch.equal(found[name], tensor.to(found[name].dtype)) for name, tensor in weights.items())
    assert (right.platform.opened > 0, right.platform.groups) == (device == "gpu-a", int(device == "gpu-b"))


def test_two_workers_send_to_each_other_before_either_receives_and_in_any_order(make: Callable[..., Any]) -> None:
    left, right = make("gpu-a"), make("gpu-b")
    to_right = [left.encode_for(right, torch.full((1000,), float(index))) for index in range(6)]
    to_left = [right.encode_for(left, torch.full((500,), -float(index))) for index in range(6)]
    seen = {}

    def take(side: Side, messages: list[Any], order: list[int]) -> None:
        seen[side.platform.name] = [side.decode(messages[index])[0].item() for index in order]

    threads = [
        threading.Thread(target=take, args=(right, to_right, [5, 0, 3, 1, 2, 4])),
        threading.Thread(target=take, args=(left, to_left, [1, 0, 5, 4, 2, 3])),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert seen == {"gpu-b": [5, 0, 3, 1, 2, 4], "gpu-a": [-1, 0, -5, -4, -2, -3]}


def test_tensors_with_equal_options_share_a_link(make: Callable[..., Any]) -> None:
    left, right = make("gpu-a"), make("gpu-b")
    few, ring = CollectiveGroupOptions(accel_max_ctas=2), CollectiveGroupOptions(use_ring_broadcast=True)
    chosen = (None, few, ring, CollectiveGroupOptions(accel_max_ctas=2), CollectiveGroupOptions())
    for number, options in enumerate(chosen):
        assert right.decode(left.encode_for(right, torch.full((1000,), float(number)), options))[7] == number
    assert left.platform.options == right.platform.options == [CollectiveGroupOptions(), few]
    for dead, living in ((left, right), (right, left)):
        dead.die_for(living)
        assert not living.devices._links


def test_options_reach_the_accelerator_s_library(monkeypatch: pytest.MonkeyPatch) -> None:
    library = MagicMock()
    monkeypatch.setattr(dist, "ProcessGroupNCCL", library, raising=False)
    chosen, untouched = library.Options.return_value, object()
    for name in ("cga_cluster_size", "max_ctas", "min_ctas"):
        setattr(chosen.config, name, untouched)
    group = CudaPlatform().make_group("store", 1, CollectiveGroupOptions())
    assert group is library.return_value
    library.assert_called_once_with("store", 1, 2, chosen)
    library.Options.assert_called_once_with(is_high_priority_stream=False)
    assert chosen.config.cga_cluster_size is chosen.config.max_ctas is chosen.config.min_ctas is untouched
    CudaPlatform().make_group("store", 0, CollectiveGroupOptions(1, 8, 2, is_high_priority_stream=True))
    assert (chosen.config.cga_cluster_size, chosen.config.max_ctas, chosen.config.min_ctas) == (1, 8, 2)
    library.Options.assert_called_with(is_high_priority_stream=True)


def test_nothing_is_parked_for_another_node(make: Callable[..., Any]) -> None:
    left = make("gpu-a")
    assert left.devices.parker(make("gpu-a", node="n1").endpoint.info) is None


def test_the_death_of_the_owner_ends_a_fetch(make: Callable[..., Any]) -> None:
    left, right = make("gpu-a"), make("gpu-b")
    frames = left.encode_for(right, torch.zeros(1000))
    second = left.encode_for(right, torch.zeros(1000))
    right.decode(frames)
    left.die_for(right)
    with pytest.raises(WorkerDiedError, match="it is gone"):
        right.decode(second)


def test_the_death_of_the_owner_ends_a_fetch_that_has_begun(make: Callable[..., Any]) -> None:
    left, right = make("gpu-a"), make("gpu-b")
    # The owner never gives: it has left the handler to hang.
    left.endpoint.serve("device_fetch", lambda call: None)
    frames = left.encode_for(right, torch.zeros(1000))
    threading.Timer(0.3, left.die_for, args=(right,)).start()
    with pytest.raises(WorkerDiedError, match="it is gone"):
        right.decode(frames)


def test_what_is_parked_goes_with_its_receiver(make: Callable[..., Any]) -> None:
    left, right, other = make("gpu-a"), make("gpu-b"), make("gpu-b")
    left.encode_for(right, torch.zeros(1000))
    kept = left.encode_for(other, torch.ones(1000))
    right.die_for(left)
    assert left.devices.num_parked == 1
    assert other.decode(kept).sum() == 1000


def test_a_tensor_is_handed_over_once_and_to_its_receiver_only(make: Callable[..., Any]) -> None:
    left, right, thief = make("gpu-a"), make("gpu-b"), make("gpu-b")
    frames = left.encode_for(right, torch.zeros(1000))
    right.decode(frames)
    with pytest.raises(ClusterError, match="not parked"):
        right.decode(frames)
    with pytest.raises(ClusterError, match="not parked"):
        thief.decode(left.encode_for(right, torch.zeros(1000)))


def test_what_goes_wrong_at_the_owner_is_told(make: Callable[..., Any]) -> None:
    left, right = make("gpu-a"), make("gpu-a")

    def refuse(tensor: torch.Tensor) -> NoReturn:
        raise RuntimeError("no handle for this memory")

    left.platform.share = refuse
    with pytest.raises(ClusterError, match="no handle for this memory"):
        right.decode(left.encode_for(right, torch.zeros(1000)))


def test_a_ticket_needs_somebody_to_fetch_it(make: Callable[..., Any]) -> None:
    left, right = make("gpu-a"), make("gpu-b")
    with pytest.raises(ClusterError, match="parked"):
        decode(left.encode_for(right, torch.zeros(1000)))


@pytest.mark.gpu
@pytest.mark.parametrize("devices", [(0, 0), (0, 1)], ids=["same device", "other device"])
def test_workers_exchange_accelerator_tensors(devices: tuple[int, int]) -> None:
    if torch.cuda.device_count() <= max(devices):
        pytest.skip("needs two CUDA devices")
    with Cluster(cluster_cfg=ClusterConfig()) as cluster:
        left, right = (
            Sample.create_group().launch(cluster, PackedPlacementStrategy(device, device), name=name)
            for device, name in zip(devices, ("left", "right"), strict=True)
        )
        sending, receiving = left.send_from_device("right", 0, 5), right.recv_on_device("left", 0, 5)
        back, forth = right.send_from_device("left", 0, 3), left.recv_on_device("right", 0, 3)
        assert receiving.wait(timeout=120) == forth.wait(timeout=120) == [True]
        sending.wait()
        back.wait()
