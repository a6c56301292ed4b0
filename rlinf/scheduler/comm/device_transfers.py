"""Large accelerator tensors between processes of one node: parked by the sender, fetched by who decodes the message.

The message holds a ticket only. Its receiver knows where it wants the tensor, and chooses the way: on the same device
it maps the sender's memory (CUDA IPC); onto another one the tensor comes over a link, a process group of two (NCCL)
made at the first tensor; without a device of its own the bytes come through host memory. A send never waits for its
receiver, so two workers may send to each other at once. What is never fetched goes when its receiver does.

Tensors for several receivers, for channels and for other nodes go through page-locked host memory instead.
"""

from __future__ import annotations

import itertools
import queue
import sys
import threading
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rlinf.errors import ClusterError
from rlinf.scheduler.address import EndpointInfo
from rlinf.scheduler.comm.endpoint import Call, Endpoint
from rlinf.scheduler.comm.futures import Promise
from rlinf.scheduler.comm.serialization import Park, fill_tensor, tensor_bytes
from rlinf.scheduler.comm.work import AsyncWork
from rlinf.utils.logging import get_logger

if TYPE_CHECKING:
    import torch

# Smaller tensors are through host memory before the two sides have agreed on anything better.
_PARK_BYTES = 1 << 20
# The receiver's half of a transfer ends with the sender's.
_SETTLE_SECONDS = 60.0


@dataclass(frozen=True)
class CollectiveGroupOptions:
    """How a tensor travels from one accelerator to another: settings of the process group of a link.

    The sender's hold, as both ends need the same; workers that use several have a link for each.

    Attributes:
        accel_cluster_size: Thread blocks of a cluster (NCCL's ``cga_cluster_size``); None is the library's choice.
        accel_max_ctas: Most thread blocks that a transfer may use; None is the library's choice.
        accel_min_ctas: Fewest thread blocks that a transfer may use; None is the library's choice.
        is_high_priority_stream: Whether transfers run on a stream of high priority.
        use_ring_broadcast: Accepted from published code, without effect: a broadcast writes to the memory of a node
            once, whence all its receivers read.
    """

    accel_cluster_size: int | None = None
    accel_max_ctas: int | None = None
    accel_min_ctas: int | None = None
    is_high_priority_stream: bool = False
    use_ring_broadcast: bool = False

    def is_empty_options(self) -> bool:
        """Whether every field has its default."""
        return self == CollectiveGroupOptions()

    def of_links(self) -> CollectiveGroupOptions:
        """Return what matters to a link: transfers with equal ones share it."""
        return replace(self, use_ring_broadcast=False)


@dataclass(frozen=True)
class Ticket:
    """What a message holds in place of a parked tensor.

    Attributes:
        owner: The process that parks it.
        number: Its number there.
        device: Identity of the device that it lies on.
        dtype: Element type.
        shape: Sizes.
        options: Of the link that it comes over onto another device.
    """

    owner: EndpointInfo
    number: int
    device: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    options: CollectiveGroupOptions


class Platform(Protocol):
    """One kind of device."""

    device_type: str

    def in_use(self) -> bool:
        """Whether this process has used such a device; called before each message, and loads nothing."""

    def local(self) -> torch.device | None:
        """Return the device that this process receives on, or None without one."""

    def identity(self, device: torch.device) -> str:
        """Return a name of a device that is the same in all processes of the node."""

    def settle(self, device: torch.device) -> Callable[[], None]:
        """Record the calling thread's pending work on a device, and return a function that waits until it is done."""

    def make_group(self, store: Any, rank: int, options: CollectiveGroupOptions) -> Any:
        """Return the process group of two that rank ``rank`` of a link uses."""

    def share(self, tensor: torch.Tensor) -> Any:
        """Return a picklable handle of a tensor's memory for other processes on its device."""

    def open(self, handle: Any, device: torch.device) -> torch.Tensor:
        """Return the tensor of a handle."""


class CudaPlatform:
    """NVIDIA GPUs, and AMD ones through torch's HIP build."""

    device_type = "cuda"

    def in_use(self) -> bool:
        """See ``Platform``."""
        torch = sys.modules.get("torch")
        return torch is not None and bool(torch.cuda.is_initialized())

    def local(self) -> torch.device | None:
        """See ``Platform``."""
        import torch

        return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else None

    def identity(self, device: torch.device) -> str:
        """See ``Platform``: indices differ between processes that see different devices, the UUID does not."""
        import torch

        return str(torch.cuda.get_device_properties(device).uuid)

    def settle(self, device: torch.device) -> Callable[[], None]:
        """See ``Platform``."""
        import torch

        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(device))
        return event.synchronize

    def make_group(self, store: Any, rank: int, options: CollectiveGroupOptions) -> Any:
        """See ``Platform``."""
        import torch.distributed as dist

        chosen = dist.ProcessGroupNCCL.Options(is_high_priority_stream=options.is_high_priority_stream)
        if options.accel_cluster_size is not None:
            chosen.config.cga_cluster_size = options.accel_cluster_size
        if options.accel_max_ctas is not None:
            chosen.config.max_ctas = options.accel_max_ctas
        if options.accel_min_ctas is not None:
            chosen.config.min_ctas = options.accel_min_ctas
        return dist.ProcessGroupNCCL(store, rank, 2, chosen)

    def share(self, tensor: torch.Tensor) -> Any:
        """See ``Platform``: torch counts the receiver's references and keeps the memory as long as there are any."""
        from torch.multiprocessing.reductions import reduce_tensor

        return reduce_tensor(tensor)[1]  # type: ignore[no-untyped-call]

    def open(self, handle: Any, device: torch.device) -> torch.Tensor:
        """See ``Platform``."""
        from torch.multiprocessing.reductions import rebuild_cuda_tensor

        # The handle holds the index of the device as its owner counts.
        arguments = [*handle[:6], device.index, *handle[7:]]
        return rebuild_cuda_tensor(*arguments)  # type: ignore[no-any-return, no-untyped-call]


@dataclass
class _Parked:
    flat: torch.Tensor
    receiver: str
    settle: Callable[[], None]
    options: CollectiveGroupOptions


class DeviceTransfers:
    """One process's parked tensors, and its links with other processes.

    Args:
        endpoint: The process's endpoint.
        folder: The run's private folder on this node, where the two ends of a link find each other.
        platform: Kind of device.
        park_bytes: Size from which tensors are parked.
    """

    def __init__(
        self, endpoint: Endpoint, folder: Path, platform: Platform | None = None, park_bytes: int = _PARK_BYTES
    ) -> None:
        self._endpoint = endpoint
        self._folder = folder
        self._platform: Platform = platform or CudaPlatform()
        self._park_bytes = park_bytes
        self._numbers = itertools.count()
        self._parked: dict[int, _Parked] = {}
        self._links: dict[tuple[str, str, CollectiveGroupOptions], _Link] = {}
        self._lock = threading.Lock()
        self._lane = _Lane("rlinf-device")
        endpoint.serve("device_fetch", self._on_fetch)

    def parker(self, receiver: EndpointInfo, options: CollectiveGroupOptions | None = None) -> Park | None:
        """Return what parks tensors for ``receiver``; None where there can be nothing to park."""
        if not self._platform.in_use() or receiver.node_id != self._endpoint.info.node_id:
            return None
        return partial(self._park, receiver, (options or CollectiveGroupOptions()).of_links())

    def _park(self, receiver: EndpointInfo, options: CollectiveGroupOptions, tensor: torch.Tensor) -> Ticket | None:
        import torch

        size = tensor.numel() * tensor.element_size()
        if tensor.device.type != self._platform.device_type or size < self._park_bytes:
            return None
        # A fresh storage of the bytes alone: a view's would be shared with all else that lies in it.
        flat = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device).copy_(tensor.detach())
        flat = flat.view(-1).view(torch.uint8)
        settle = self._platform.settle(tensor.device)
        number = next(self._numbers)
        with self._lock:
            self._parked[number] = _Parked(flat, receiver.uid, settle, options)
        identity = self._platform.identity(tensor.device)
        return Ticket(self._endpoint.info, number, identity, tensor.dtype, tuple(tensor.shape), options)

    def fetch(self, ticket: Ticket) -> torch.Tensor:
        """Return the tensor of a ticket, on this process's device or in host memory; once only.

        Raises:
            WorkerDiedError: Its owner is gone.
            ClusterError: It was fetched before.
        """
        device = self._platform.local()
        if device is None:
            flat = self._fetch_bytes(ticket)
        elif self._platform.identity(device) == ticket.device:
            flat = self._platform.open(self._query(ticket, "handle").value, device)
        else:
            flat = self._fetch_over_link(ticket, device)
        return flat.view(ticket.dtype).view(ticket.shape)

    def peer_died(self, uid: str) -> None:
        """Drop what was parked for a process, and cut the links with it."""
        with self._lock:
            for number in [number for number, parked in self._parked.items() if parked.receiver == uid]:
                del self._parked[number]
            links = [self._links.pop(ends) for ends in list(self._links) if uid in ends[:2]]
        for link in links:
            link.cut()

    def close(self) -> None:
        """Cut all links."""
        with self._lock:
            links = list(self._links.values())
            self._links.clear()
            self._parked.clear()
        for link in links:
            link.cut()
        self._lane.stop()

    @property
    def num_parked(self) -> int:
        """Tensors that wait to be fetched."""
        return len(self._parked)

    def _query(self, ticket: Ticket, way: str) -> Any:
        request = self._endpoint.request(ticket.owner, "device_fetch", (ticket.number, way))
        return self._wait(request, ticket)

    def _wait(self, request: Any, ticket: Ticket) -> Any:
        what = f"process {self._endpoint.info.uid} fetches a {ticket.dtype} tensor {ticket.shape} of {ticket.owner.uid}"
        return AsyncWork[Any](request, describe=what).wait()

    def _fetch_bytes(self, ticket: Ticket) -> torch.Tensor:
        import torch

        (frame,) = self._query(ticket, "bytes").frames
        flat = torch.empty(len(frame), dtype=torch.uint8)
        fill_tensor(flat, frame)
        return flat

    def _fetch_over_link(self, ticket: Ticket, device: torch.device) -> torch.Tensor:
        import torch

        num_bytes = ticket.dtype.itemsize * torch.Size(ticket.shape).numel()
        flat = torch.empty(num_bytes, dtype=torch.uint8, device=device)
        link = self._link(ticket.owner.uid, self._endpoint.info.uid, ticket.options)
        with link.ordering:  # both ends must take several tensors in one order
            request = self._endpoint.request(ticket.owner, "device_fetch", (ticket.number, "link"))
            arrived = link.receive(flat)
        self._wait(request, ticket)
        arrived.result(timeout=_SETTLE_SECONDS)
        return flat

    def _on_fetch(self, call: Call) -> None:
        number, way = call.args
        with self._lock:
            parked = self._parked.pop(number, None)
        if parked is None or parked.receiver != call.sender.uid:
            raise ClusterError(f"Tensor {number} of {self._endpoint.info.uid} is not parked for {call.sender.uid}.")
        if way == "link":
            link = self._link(self._endpoint.info.uid, call.sender.uid, parked.options)
            link.lane.submit(lambda: self._answer(call, parked, link.send))
        elif way == "handle":
            self._lane.submit(lambda: self._answer(call, parked, self._platform.share))
        else:
            self._lane.submit(lambda: self._answer(call, parked, tensor_bytes))

    def _answer(self, call: Call, parked: _Parked, give: Callable[[torch.Tensor], Any]) -> None:
        """Hand a tensor over, on a helper thread: errors reach the process that fetches it."""
        try:
            parked.settle()
            given = give(parked.flat)
        except Exception as error:  # noqa: BLE001 - the boundary of the thread
            call.fail(ClusterError(f"A tensor cannot be handed over: {type(error).__name__}: {error}"))
            return
        if isinstance(given, memoryview):
            call.reply(frames=[given])
        else:
            call.reply(given)

    def _link(self, sender: str, receiver: str, options: CollectiveGroupOptions) -> _Link:
        ends = (sender, receiver, options)
        with self._lock:
            if ends not in self._links:
                rank = 0 if sender == self._endpoint.info.uid else 1
                name = "-".join(map(str, ("link", sender, receiver, *astuple(options))))
                self._links[ends] = _Link(self._platform, self._folder / name, rank, options)
            return self._links[ends]


class _Link:
    """One end of a process group of two, over which tensors go one way: rank 0 sends, rank 1 receives.

    Args:
        platform: Kind of device.
        path: File by which the two ends meet.
        rank: Which end.
        options: Of the group.
    """

    def __init__(self, platform: Platform, path: Path, rank: int, options: CollectiveGroupOptions) -> None:
        self.ordering = threading.Lock()
        self.lane = _Lane(f"rlinf-link-{rank}")
        self._platform = platform
        self._path = path
        self._rank = rank
        self._options = options
        self._group: Any = None

    def send(self, flat: torch.Tensor) -> None:
        """Send; on the lane's thread."""
        self._join().send([flat], 1, 0).wait()
        self._platform.settle(flat.device)()

    def receive(self, flat: torch.Tensor) -> Promise[None]:
        """Begin to receive into a tensor; the promise ends when it is filled."""
        done: Promise[None] = Promise()

        def run() -> None:
            try:
                self._join().recv([flat], 0, 0).wait()
                self._platform.settle(flat.device)()
            except Exception as error:  # noqa: BLE001 - the boundary of a helper thread
                done.set_exception(ClusterError(f"A tensor has not arrived: {type(error).__name__}: {error}"))
            else:
                done.set_result(None)

        self.lane.submit(run)
        return done

    def cut(self) -> None:
        """End the group, also in the middle of a transfer."""
        self.lane.stop()
        if self._group is not None:
            try:
                self._group.abort()
            except Exception as error:  # noqa: BLE001 - the library may be in any state: the other end is gone
                get_logger(__name__).debug("Cutting a link: %s", error)

    def _join(self) -> Any:
        if self._group is None:
            import torch.distributed as dist

            store = dist.FileStore(str(self._path), 2)  # type: ignore[attr-defined]
            self._group = self._platform.make_group(store, self._rank, self._options)
        return self._group


class _Lane:
    """A thread that does one thing after the other; started with the first, and no reason for a process to stay.

    Args:
        name: Of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def submit(self, task: Callable[[], None]) -> None:
        """Do ``task``, which must not raise, after those before it."""
        self._tasks.put(task)
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """End the thread after what it does now."""
        self._tasks.put(None)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()
