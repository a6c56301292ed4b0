"""The base class of everything that runs in its own process: identity, device, messages, logs, timers."""

from __future__ import annotations

import functools
import inspect
import logging
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, ParamSpec, TypeVar, cast, overload

from rlinf.errors import RLinfError, UnsupportedError
from rlinf.placement import AcceleratorType
from rlinf.scheduler.address import WorkerAddress, WorkerInfo
from rlinf.scheduler.channel import Channel
from rlinf.scheduler.comm.device_transfers import CollectiveGroupOptions
from rlinf.scheduler.comm.work import AsyncWork
from rlinf.scheduler.hardware_info import HardwareInfo
from rlinf.scheduler.messaging import Messenger, options_of
from rlinf.scheduler.platform import LazyDeviceType, LazyPlatform, worker_device
from rlinf.scheduler.probe import find_free_port
from rlinf.scheduler.runtime import current_runtime, find_runtime
from rlinf.scheduler.sharding import receive_shard, send_shards
from rlinf.scheduler.tracing import timed
from rlinf.utils.closing import close_all
from rlinf.utils.logging import get_logger
from rlinf.utils.published import published_keywords
from rlinf.utils.timing import Timers

if TYPE_CHECKING:
    import torch

    from rlinf.config.schema.cluster import ProfilingConfig
    from rlinf.scheduler.group import WorkerGroup
    from rlinf.scheduler.worker_profile import WorkerProfile

P = ParamSpec("P")
R = TypeVar("R")
Ranks = int | Sequence[int]
Options = CollectiveGroupOptions | None

GROUP_MEMBERS = frozenset(
    {
        "close",
        "execute_on",
        "from_group_name",
        "launch",
        "name",
        "relaunch",
        "restart",
        "wait_ready",
        "worker_cls_name",
        "worker_group_name",
        "worker_info_list",
        "world_size",
    }
)


class Worker:
    """One process of a worker group; subclass it, call ``super().__init__()``, and launch it with ``create_group``.

    Constructed directly, outside of a cluster, it is rank 0 of a world of 1.

    Attributes:
        torch_platform: The torch module of this process's kind of device (``torch.cuda``, ``torch.cpu``, ...).
        torch_device_type: Its name for torch, ``"cuda"`` or ``"cpu"``.
    """

    torch_platform: ClassVar[Any] = LazyPlatform()
    torch_device_type: ClassVar[Any] = LazyDeviceType()

    _rank: int
    _world_size: int
    _group_name: str
    _worker_address: WorkerAddress
    _timers: Timers
    _messenger: Messenger
    _logger: logging.Logger
    _closers: list[Callable[[], object]]
    _profile: WorkerProfile | None = None
    _lock_holders: set[int]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Give the new worker its identity."""
        worker = super().__new__(cls)
        runtime = find_runtime()
        identity = runtime.identity if runtime else None
        worker._worker_address = identity.address if identity else WorkerAddress(cls.__name__, 0)
        worker._rank = worker._worker_address.rank
        worker._group_name = worker._worker_address.group_name
        worker._world_size = identity.world_size if identity else 1
        worker._timers = Timers()
        worker._closers = []
        worker._lock_holders = set()
        worker._logger = get_logger(str(worker._worker_address))
        worker._messenger = Messenger(worker._worker_address)
        return worker

    def __init__(self) -> None:
        """Nothing to do: the identity is set before; kept so that subclasses can call it."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse method names that the group needs for itself."""
        super().__init_subclass__(**kwargs)
        check_method_names(cls)

    @classmethod
    def create_group(cls, *args: Any, **kwargs: Any) -> WorkerGroup[Any]:
        """Prepare a group of this class; ``launch`` starts it.

        Args:
            *args: Positional arguments of the constructor, the same for every rank.
            **kwargs: Keyword arguments of the constructor.
        """
        from rlinf.scheduler.group import WorkerGroup

        return WorkerGroup(cls, args, kwargs)

    def at_shutdown(self, close: Callable[[], object]) -> None:
        """Let ``close`` be called when the group is closed; the last one named is the first one called.

        Each is called, also after another has raised.

        Args:
            close: Releases what outlives Python objects (child processes, files); takes no arguments.
        """
        self._closers.append(close)

    def on_shutdown(self) -> None:
        """Override to do something when the group is closed, before what ``at_shutdown`` was given."""

    def _shut_down(self) -> None:
        """Call ``on_shutdown``, and release what ``at_shutdown`` was given; called at the end of the process."""
        closers, self._closers = self._closers, []
        close_all([self.on_shutdown, *reversed(closers)])

    # Identity and hardware

    @property
    def worker_address(self) -> WorkerAddress:
        """This worker's name; prints as ``group:rank``."""
        return self._worker_address

    @property
    def device(self) -> torch.device:
        """The torch device of this worker."""
        return worker_device()

    @property
    def has_accelerator(self) -> bool:
        """Whether this worker has an accelerator of its own."""
        return bool(worker_device().type != "cpu")

    @property
    def hardware_infos(self) -> list[HardwareInfo]:
        """The hardware this worker was placed on: for declared hardware its configuration, else type and local rank."""
        runtime = find_runtime()
        if runtime is None or runtime.identity is None:
            return []
        return [HardwareInfo(info) for info in runtime.identity.hardware_infos]

    @property
    def node_id(self) -> str:
        """Ray's id of the node that this worker is on."""
        return self._messenger.node_id

    def find_nodes(self, group_name: str) -> list[str]:
        """Return the id of each rank's node; waits until the group is launched.

        Args:
            group_name: The group.
        """
        return self._messenger.find_nodes(group_name)

    # Messages

    def shared_buffer(self, num_bytes: int) -> torch.Tensor:
        """Return host memory for a message that is large and put together in place.

        Receivers on this node look at this very memory, however many they are; others get a copy. So it may be written
        until it is sent for the first time, and not afterwards: take another buffer for the next message. Where shared
        memory is short it is ordinary memory, which ``send`` copies.

        Args:
            num_bytes: Its size.

        Returns:
            uint8, [num_bytes]; what it holds is undefined.
        """
        return self._messenger.shared_buffer(num_bytes)

    @overload
    def send(self, obj: Any, dst_group_name: str, dst_rank: Ranks, async_op: Literal[False] = False, tag: Hashable = None, timeout: float | None = None, options: Options = None) -> None: ...  # fmt: skip  # noqa: E501
    @overload
    def send(self, obj: Any, dst_group_name: str, dst_rank: Ranks, async_op: Literal[True], tag: Hashable = None, timeout: float | None = None, options: Options = None) -> AsyncWork[None]: ...  # fmt: skip  # noqa: E501
    @published_keywords(object="obj")
    def send(
        self,
        obj: Any,
        dst_group_name: str,
        dst_rank: Ranks,
        async_op: bool = False,
        tag: Hashable = None,
        timeout: float | None = None,
        options: Options = None,
    ) -> AsyncWork[None] | None:
        """Send any object to one or several ranks of a group; it may change once this returns.

        Args:
            obj: What to send; tensors anywhere in it travel without a copy through pickle.
            dst_group_name: Group of the receivers.
            dst_rank: Rank or ranks of the receivers.
            async_op: Return an ``AsyncWork`` instead of waiting until the receivers are found.
            tag: The tag that the receiver must give; None matches None.
            timeout: Seconds to wait for the receivers' launch; None is ``RLINF_TIMEOUT_SECONDS``.
            options: How tensors travel onto another accelerator of the node; None leaves it to the library. To several
                ranks, and to other nodes, they go through host memory, for which options have no use.

        Raises:
            WorkerDiedError: A receiver is gone.
            CommTimeoutError: The group was not launched in time.
        """
        tag, options = options_of(tag, options)
        work = self._messenger.send(obj, dst_group_name, dst_rank, tag=tag, timeout=timeout, options=options)
        return work if async_op else work.wait()

    @overload
    def recv(self, src_group_name: str, src_rank: int, async_op: Literal[False] = False, tag: Hashable = None, timeout: float | None = None, options: Options = None) -> Any: ...  # fmt: skip  # noqa: E501
    @overload
    def recv(self, src_group_name: str, src_rank: int, async_op: Literal[True], tag: Hashable = None, timeout: float | None = None, options: Options = None) -> AsyncWork[Any]: ...  # fmt: skip  # noqa: E501
    def recv(
        self,
        src_group_name: str,
        src_rank: int,
        async_op: bool = False,
        tag: Hashable = None,
        timeout: float | None = None,
        options: Options = None,
    ) -> Any:
        """Receive the next object that a worker has sent with this tag.

        Args:
            src_group_name: Group of the sender.
            src_rank: Rank of the sender.
            async_op: Return an ``AsyncWork`` instead of waiting.
            tag: The sender's tag.
            timeout: Seconds to wait; None is ``RLINF_TIMEOUT_SECONDS``.
            options: Accepted as for ``send``; the sender's hold.

        Raises:
            WorkerDiedError: The sender is gone.
            CommTimeoutError: Nothing came in time.
        """
        tag, _ = options_of(tag, options)
        work = self._messenger.recv(src_group_name, src_rank, tag=tag, timeout=timeout)
        return work if async_op else work.wait()

    def send_tensor(
        self,
        tensor: torch.Tensor,
        dst_group_name: str,
        dst_rank: Ranks,
        async_op: bool = False,
        tag: Hashable = None,
        timeout: float | None = None,
        options: Options = None,
    ) -> AsyncWork[None] | None:
        """Send a tensor's bytes alone; the receiver calls ``recv_tensor`` with one of the same shape and dtype.

        Raises:
            PayloadError: The tensor is not dense (sparse, nested or quantized): use ``send``.
        """
        tag, options = options_of(tag, options)
        work = self._messenger.send_tensor(tensor, dst_group_name, dst_rank, tag=tag, timeout=timeout, options=options)
        return work if async_op else work.wait()

    def recv_tensor(
        self,
        tensor: torch.Tensor,
        src_group_name: str,
        src_rank: int,
        async_op: bool = False,
        tag: Hashable = None,
        timeout: float | None = None,
        options: Options = None,
    ) -> AsyncWork[None] | None:
        """Receive into ``tensor`` in place what ``send_tensor`` sent.

        Raises:
            PayloadError: The tensor is not dense, or the one that was sent has another shape or dtype.
        """
        tag, _ = options_of(tag, options)
        work = self._messenger.recv_tensor(tensor, src_group_name, src_rank, tag=tag, timeout=timeout)
        return work if async_op else work.wait()

    @published_keywords(object="obj")
    def broadcast(
        self,
        obj: Any = None,
        groups: Sequence[tuple[str, Ranks | None]] | None = None,
        src: tuple[str, int] | None = None,
        async_op: bool = False,
        options: Options = None,
        timeout: float | None = None,
    ) -> Any:
        """Give every listed worker the source's object; all of them must call this.

        Args:
            obj: The object, at the source; ignored elsewhere.
            groups: (group, rank or ranks, None for all) of all workers that take part; None is the worker's own group.
            src: The source; None is the first rank of the first group.
            async_op: Return an ``AsyncWork`` instead of waiting.
            options: Accepted as for ``send``; a broadcast goes through host memory.
            timeout: Seconds to wait; None is ``RLINF_TIMEOUT_SECONDS``.

        Returns:
            The source's object.
        """
        options_of(None, options)
        work = self._messenger.broadcast(obj, groups or [(self._group_name, None)], src, timeout=timeout)
        return work if async_op else work.wait()

    # Channels

    @published_keywords(channel_name="name")
    def create_channel(
        self,
        name: str,
        maxsize: int = 0,
        distributed: bool = False,
        node_rank: int | None = None,
        local: bool = False,
    ) -> Channel:
        """Create a channel on this worker's node; see ``Channel.create``."""
        return Channel.create(name, maxsize, distributed, node_rank, local)

    @published_keywords(channel_name="name")
    def connect_channel(self, name: str) -> Channel:
        """Connect to a channel, waiting until it exists; see ``Channel.connect``."""
        return Channel.connect(name)

    def send_to(
        self,
        group_name: str,
        channel: Channel,
        batch: Any,
        *,
        route_key: Hashable = 0,
        tag: Hashable = None,
        batch_dim: int = 0,
        async_op: bool = False,
    ) -> AsyncWork[Any] | None:
        """Send this rank's part of a global batch to a group of any size.

        The parts of all senders, in order of rank, are one batch; receivers get contiguous shards of it, by rank.

        Args:
            group_name: The receiving group.
            channel: Channel that carries the shards.
            batch: A tensor, array, list, or nest of dicts, tuples and dataclasses of them; all have the same length
                along ``batch_dim``.
            route_key: Keeps several exchanges over one channel apart.
            tag: As ``route_key``, for the caller's own use.
            batch_dim: Dimension of tensors and arrays that is cut.
            async_op: Return an ``AsyncWork`` instead of waiting.

        Raises:
            ValueError: The batch cannot be cut as the sizes of the groups need, or a shard would cut a ``group_id``.
        """
        work = send_shards(self._messenger, self._world_size, group_name, channel, batch, (route_key, tag), batch_dim)
        return work if async_op else work.wait()

    def recv_from(
        self,
        group_name: str,
        channel: Channel,
        *,
        route_key: Hashable = 0,
        tag: Hashable = None,
        batch_dim: int = 0,
        async_op: bool = False,
    ) -> Any:
        """Receive this rank's contiguous shard of the batch that ``group_name`` sends with ``send_to``."""
        work = receive_shard(self._messenger, self._world_size, group_name, channel, (route_key, tag), batch_dim)
        return work if async_op else work.wait()

    # Leases

    def acquire_free_port(self, max_port_num: int | None = None) -> int:
        """Return a free TCP port of this node that no other worker is given while this one lives.

        Args:
            max_port_num: Largest port that is allowed; None is any.
        """
        runtime = find_runtime()
        port = find_free_port(max_port_num)
        while runtime is not None and not runtime.query("take_port", runtime.node_id, port):
            port = find_free_port(max_port_num)
        return port

    @property
    def device_lock(self) -> AbstractContextManager[None]:
        """A lock that workers on the same device share: ``with self.device_lock: ...``; it dies with its holder.

        Threads of one worker wait for one another as workers do; one that holds the lock cannot take it again.
        """
        return self._device_lock()

    @contextmanager
    def _device_lock(self) -> Iterator[None]:
        runtime = find_runtime()
        if runtime is None:
            yield
            return
        thread = threading.get_ident()
        if thread in self._lock_holders:
            raise RLinfError(
                f"{self._worker_address} takes device_lock in a block that holds it already, and would wait for itself "
                "without end. Take it in one of the two places only."
            )
        kind = "accelerator" if runtime.identity and runtime.identity.accelerators else "slot"
        ranks = runtime.identity.hardware_ranks if runtime.identity else ()
        held: list[tuple[str, str, int]] = []
        try:
            # In ascending order, so that workers whose devices overlap cannot deadlock.
            for rank in sorted(ranks) or [-1]:
                key = (kind, runtime.node_id, rank)
                AsyncWork(runtime.request("lock", key), describe=f"{self._worker_address} waits for {key}").wait()
                held.append(key)
            self._lock_holders.add(thread)
            yield
        finally:
            self._lock_holders.discard(thread)
            for key in held:
                runtime.query("unlock", key)

    # Logs and timers

    @published_keywords(msg="message")
    def log_debug(self, message: str) -> None:
        """Log a line that carries this worker's group and rank."""
        self._logger.debug(message)

    @published_keywords(msg="message")
    def log_info(self, message: str) -> None:
        """Log a line that carries this worker's group and rank."""
        self._logger.info(message)

    @published_keywords(msg="message")
    def log_warning(self, message: str) -> None:
        """Log a line that carries this worker's group and rank."""
        self._logger.warning(message)

    @published_keywords(msg="message")
    def log_error(self, message: str) -> None:
        """Log a line that carries this worker's group and rank."""
        self._logger.error(message)

    @published_keywords(msg="message")
    def log_on_first_rank(self, message: str) -> None:
        """Log a line on rank 0 only."""
        if self._rank == 0:
            self._logger.info(message)

    @published_keywords(msg="message")
    def log_on_last_rank(self, message: str) -> None:
        """Log a line on the last rank only."""
        if self._rank == self._world_size - 1:
            self._logger.info(message)

    def worker_timer(self, tag: str | None = None, trace: bool = True) -> AbstractContextManager[Any]:
        """Measure a block: ``with self.worker_timer("forward"): ...``; blocks of one tag add up.

        Args:
            tag: What the metric is called; None is the name of the function that holds the block.
            trace: Whether the trace shows the block, too.
        """
        tag = inspect.stack(0)[1].function if tag is None else tag
        return timed(self._timers, tag) if trace else self._timers(tag)

    @staticmethod
    def timer(tag: str | None = None, trace: bool = True) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Measure every call of a method: ``@Worker.timer("forward")``; also for ``async def`` methods.

        Args:
            tag: What the metric is called; None is the method's name.
            trace: Whether the trace shows the calls, too.
        """
        return functools.partial(_timed, tag, trace)

    def start_profile(self, path: str, options: ProfilingConfig) -> None:
        """Begin to record operators and kernels of this worker's sync methods; ``stop_profile`` writes the file.

        Args:
            path: The file, in Chrome's trace format; its folder is created.
            options: What to record.
        """
        from rlinf.scheduler.worker_profile import WorkerProfile

        self.stop_profile()  # one may be left of a step that failed
        self._profile = WorkerProfile.begin(Path(path), options)

    def stop_profile(self) -> None:
        """Write what was recorded since ``start_profile``; nothing if nothing was."""
        profile, self._profile = self._profile, None
        if profile is not None:
            profile.finish()

    def pop_execution_times(self) -> dict[str, float]:
        """Return the measured seconds by tag and start again from zero."""
        return self._timers.pop()

    def pop_execution_time(self, tag: str) -> float:
        """Return the measured seconds of one tag and start it again from zero.

        Raises:
            MetricError: No block of this tag has ended.
        """
        return self._timers.pop_tag(tag)

    def pop_peak_memory(self) -> int:
        """Return the most bytes that this process has held; see ``rlinf.telemetry.devices.pop_peak_memory_bytes``."""
        from rlinf.telemetry.devices import pop_peak_memory_bytes

        return pop_peak_memory_bytes(self.device)

    # Published names

    def get_name(self) -> str:
        """Published name of ``str(worker.worker_address)``."""
        return str(self._worker_address)

    def get_parent_rank(self) -> int:
        """Published name of ``worker.worker_address.get_parent_rank()``."""
        return self._worker_address.get_parent_rank()

    @property
    def worker_info(self) -> WorkerInfo:
        """What other processes know of this worker.

        Raises:
            ClusterError: The worker was built without a launch.
        """
        return current_runtime().worker_info()

    @property
    def hardware_type(self) -> str:
        """Type of the hardware this worker was placed on; that of no accelerator if it was placed on none."""
        infos = self.hardware_infos
        return str(infos[0]["type"]) if infos else str(AcceleratorType.NO_ACCEL)

    @property
    def manager_proxy(self) -> NoReturn:
        """Refused: the manager is reached through the calls of workers, groups and channels only.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(
            "Worker.manager_proxy is not supported. Use WorkerGroup.from_group_name(cls, name).worker_info_list for "
            "other workers, check_worker_alive(name), device_lock, acquire_free_port() or Channel.connect(name)."
        )

    @staticmethod
    def check_worker_alive(worker_name: str) -> bool:
        """Whether a worker's process lives, or is starting.

        Args:
            worker_name: The worker, as ``group:rank``.

        Raises:
            ValueError: The name has another form.
            ClusterError: This process takes part in no run.
        """
        return bool(current_runtime().query("group_alive", WorkerAddress.from_name(worker_name)))


def _timed(given: str | None, trace: bool, method: Callable[P, R]) -> Callable[P, R]:
    tag = method.__name__ if given is None else given

    def measure(args: tuple[Any, ...]) -> AbstractContextManager[Any]:
        return timed(_timers_of(args), tag) if trace else _timers_of(args)(tag)

    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def measured_async(*args: P.args, **kwargs: P.kwargs) -> Any:
            with measure(args):
                return await method(*args, **kwargs)

        return cast(Callable[P, R], measured_async)

    @functools.wraps(method)
    def measured(*args: P.args, **kwargs: P.kwargs) -> R:
        with measure(args):
            return method(*args, **kwargs)

    return measured


def _timers_of(args: tuple[Any, ...]) -> Timers:
    if not args or not isinstance(args[0], Worker):
        raise RLinfError("@Worker.timer is for methods of Worker subclasses.")
    return args[0]._timers


def check_method_names(cls: type) -> None:
    """Check that a worker class's methods can be called through its group.

    Raises:
        TypeError: A public method clashes with the group's own names.
    """
    clashes = sorted(GROUP_MEMBERS & set(vars(cls)))
    if clashes:
        raise TypeError(
            f"{cls.__name__} defines {', '.join(clashes)}, which its WorkerGroup uses itself: "
            f"group.{clashes[0]} could not reach it. Rename the method. Reserved: {', '.join(sorted(GROUP_MEMBERS))}."
        )
