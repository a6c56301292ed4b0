"""Published code runs: every public method of workers, groups and channels is called as published code calls it."""
# Published keywords are not in the signatures.
# mypy: disable-error-code="call-arg, call-overload"

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from rlinf.errors import ClusterError
from rlinf.scheduler import (
    Channel,
    Cluster,
    CollectiveGroupOptions,
    ComponentPlacement,
    FlexiblePlacementStrategy,
    Placement,
    Worker,
    WorkerAddress,
    WorkerGroup,
)


class PublishedWorker(Worker):
    """Two ranks that talk with each other in published calls only."""

    def __init__(self) -> None:
        super().__init__()
        self.options = CollectiveGroupOptions(accel_cluster_size=1, accel_max_ctas=4, accel_min_ctas=1)

    def objects(self) -> list[Any]:
        """Send, receive and broadcast objects, by position and by keyword, at once and later."""
        peer, group, found = 1 - self._rank, self._group_name, []
        if self._rank == 0:
            self.send({"a": 1}, group, peer)
            self.send(object=2, dst_group_name=group, dst_rank=peer, async_op=True, options=self.options).wait()
        else:
            found.append(self.recv(group, peer))
            work = self.recv(src_group_name=group, src_rank=peer, async_op=True, options=self.options)
            found.append(work.wait())
        ranks = [(group, [0, 1])]
        given = "said" if self._rank == 0 else None
        found.append(self.broadcast(object=given, groups=ranks, src=(group, 0), async_op=False, options=None))
        found.append(self.broadcast(given, ranks, (group, 0), True, self.options).wait())
        return found

    def tensors(self) -> list[float]:
        """Send a tensor's bytes alone."""
        peer, group = 1 - self._rank, self._group_name
        tensor = torch.full((3,), float(self._rank))
        if self._rank == 0:
            self.send_tensor(tensor, group, peer, async_op=False, options=self.options)
        else:
            self.recv_tensor(tensor=tensor, src_group_name=group, src_rank=peer, async_op=False, options=self.options)
        return list(map(float, tensor))

    def channels(self, name: str) -> list[Any]:
        """Create a channel, connect to it, and use it."""
        if self._rank == 0:
            channel = self.create_channel(channel_name=name, maxsize=3, distributed=False, node_rank=0, local=False)
            channel.put(item="x", weight=2, key="k", async_op=False)
            channel.put_nowait("y", weight=0, key="k")
            self.send("created", self._group_name, 1)
            return [channel.is_local]
        self.recv(self._group_name, 0)
        assert self.connect_channel(name=name).name == name
        channel = self.connect_channel(channel_name=name)
        same = Channel.connect(name, self)
        again = Channel.connect(name=name, current_worker=self)
        first = [channel.qsize("k"), same.empty("k"), again.full(key="k"), channel.get(key="k", async_op=True).wait()]
        channel.put("z", weight=1, key="k")
        rest = channel.get_batch(target_weight=2, key="k")
        with pytest.raises(asyncio.QueueEmpty):
            channel.get_nowait("k")
        channel.put("last")
        return [*first, rest, channel.get_batch()]

    def parts(self, name: str) -> Any:
        """Send a global batch from rank to rank, of which a rank has its part, cut along the second dimension."""
        batch = torch.arange(8.0).view(2, 4)[:, 2 * self._rank : 2 * self._rank + 2]
        channel, group = Channel.connect(name), self._group_name
        sent = self.send_to(group, channel, batch, route_key="r", tag="t", batch_dim=1, async_op=True)
        assert sent is not None
        got = self.recv_from(group, channel, route_key="r", tag="t", batch_dim=1, async_op=True).wait()
        sent.wait()
        return got.tolist()

    @Worker.timer()
    def measured(self) -> str:
        """Measure a method and a block that have no tags."""
        with self.worker_timer(), self.worker_timer("quiet", trace=False):
            pass
        return "done"

    @Worker.timer("named", trace=False)
    async def measured_later(self) -> str:
        """Measure a method whose calls the trace does not show."""
        return "later"

    def timers(self) -> list[str]:
        """Return what has been measured."""
        assert self.pop_execution_time(tag="named") >= 0
        return sorted(self.pop_execution_times())

    def identity(self) -> dict[str, Any]:
        """Return what published code asks a worker about itself."""
        self.log_debug(message="a line")
        self.log_info(msg="a line")
        self.log_warning(message="a line")
        self.log_error(message="a line")
        self.log_on_first_rank(msg="a line")
        self.log_on_last_rank(msg="a line")
        with self.device_lock:
            port = self.acquire_free_port(max_port_num=65000)
        return {
            "name": self.get_name(),
            "parent": self.get_parent_rank(),
            "address": self.worker_address.get_name(),
            "info": self.worker_info.rank,
            "alive": Worker.check_worker_alive(worker_name=self.get_name()),
            "platform": (Worker.torch_device_type, Worker.torch_platform.__name__),
            "hardware": (self.hardware_type, self.has_accelerator),
            "port": 0 < port <= 65000,
            "initialized": Cluster.has_initialized(),
        }


@pytest.fixture
def group(launch: Callable[..., Any]) -> WorkerGroup[PublishedWorker]:
    launched: WorkerGroup[PublishedWorker] = launch(PublishedWorker.create_group(), name="published")
    return launched


def test_published_calls_of_workers(group: Any, unique: str) -> None:
    assert group.objects().wait() == [["said", "said"], [{"a": 1}, 2, "said", "said"]]
    assert group.tensors().wait() == [[0.0] * 3, [0.0] * 3]
    with contextlib.closing(Channel.create(f"{unique}_parts")):
        assert group.parts(f"{unique}_parts").wait() == [[[0.0, 1.0], [4.0, 5.0]], [[2.0, 3.0], [6.0, 7.0]]]
    local, taken = group.channels(unique).wait()
    assert local == [False]
    assert taken == [2, False, False, "x", ["y", "z"], ["last"]]
    assert group.measured().wait() == ["done", "done"]
    assert group.measured_later().wait() == ["later", "later"]
    assert group.timers().wait() == [["measured", "quiet"], ["measured", "quiet"]]
    first = group.execute_on(0).identity().wait()[0]
    assert first == {
        "name": "published:0",
        "parent": 0,
        "address": "published:0",
        "info": 0,
        "alive": True,
        "platform": ("cpu", "torch.cpu"),
        "hardware": ("NO_ACCEL", False),
        "port": True,
        "initialized": True,
    }


def test_published_names_of_groups(group: Any) -> None:
    assert (group.worker_cls_name, group.worker_group_name) == ("PublishedWorker", "published")
    assert [info.address for info in group.worker_info_list] == [WorkerAddress("published", rank) for rank in (0, 1)]
    again = WorkerGroup.from_group_name(worker_cls=PublishedWorker, group_name="published")
    assert again.worker_group_name == "published"


def test_published_calls_of_placements(cluster: Cluster) -> None:
    strategy = FlexiblePlacementStrategy(hardware_ranks_list=[[0], [2]], node_group_label=None)
    group = PublishedWorker.create_group().launch(
        cluster, placement_strategy=strategy, name="placed", isolate_gpu=True, catch_system_failure=True
    )
    with contextlib.closing(group):
        assert [info.rank for info in group.worker_info_list] == [0, 1]
    (seat, other) = strategy.get_placement(cluster, isolate_accelerator=True)
    again = Placement(
        rank=0,
        node_group_label=seat.node_group_label,
        cluster_node_rank=0,
        placement_node_rank=0,
        local_rank=0,
        local_world_size=2,
        local_accelerator_rank=-1,
        accelerator_type=seat.accelerator_type,
        visible_accelerators=[],
        isolate_accelerator=True,
        local_hardware_ranks=[0],
    )
    assert (again, other.local_hardware_ranks) == (seat, [2])
    cfg: Any = OmegaConf.create({"cluster": {"component_placement": {"actor,rollout": "0-1", "env": "2-3"}}})
    placement = ComponentPlacement(config=cfg, cluster=cluster)
    assert sorted(placement.components) == ["actor", "env", "rollout"]
    assert placement.get_world_size(component="env") == 2


def test_ports_have_a_bound() -> None:
    assert 0 < Cluster.find_free_port(max_port_num=65535) <= 65535
    with pytest.raises(ClusterError, match="No free port up to 1 "):
        Cluster.find_free_port(1)
