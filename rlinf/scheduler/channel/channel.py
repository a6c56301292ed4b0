"""The handle of a channel: what users create, connect to, put into and get from."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Hashable
from functools import partial
from typing import Any, Literal, overload

from rlinf.errors import ClusterError, CommTimeoutError
from rlinf.scheduler.address import EndpointInfo
from rlinf.scheduler.channel.channel_backend import Backend, HostedBackend, LocalBackend
from rlinf.scheduler.channel.queue import RejectedError
from rlinf.scheduler.comm.spans import channel_label
from rlinf.scheduler.comm.work import AsyncWork, default_timeout_seconds, give_up_dropped
from rlinf.scheduler.runtime import current_runtime, find_runtime
from rlinf.utils.published import note_unused

_local_channels: dict[str, Channel] = {}
_local_lock = threading.Lock()

DEFAULT_KEY = "default"


class Channel:
    """A named, keyed, weighted, bounded FIFO; works in the driver and in sync and async worker methods.

    A handle is small when pickled and connects again in the process that receives it. In an ``async def`` method use
    ``async_op=True`` and ``await work.async_wait()``: a blocking call would stop the event loop.
    """

    def __init__(self, name: str, maxsize: int, backend: Backend) -> None:
        self.name = name
        self.maxsize = maxsize
        self._backend = backend

    @classmethod
    def create(
        cls,
        name: str,
        maxsize: int = 0,
        distributed: bool = False,
        node_rank: int | None = None,
        local: bool = False,
        disable_distributed_log: bool | None = None,
    ) -> Channel:
        """Create a channel on this process's node.

        A worker that was launched again gets the channel that its predecessor created under this name, with its items.

        Args:
            name: Unique in the run.
            maxsize: Items per key before a put waits; 0 is unbounded.
            distributed: Accepted from published code; has no effect, which is logged once.
            node_rank: As ``distributed``.
            local: Keep it within this process; items are then passed by reference.
            disable_distributed_log: As ``distributed``.

        Raises:
            ClusterError: A channel of this name exists.
        """
        if maxsize < 0:
            raise ValueError(f"Channel '{name}': maxsize must be >= 0 (0 is unbounded), got {maxsize}.")
        for argument, is_given in (("distributed", distributed), ("node_rank", node_rank is not None)):
            if is_given:
                note_unused(
                    f"Channel.create({argument}=)", "a channel lives on the node of the process that creates it"
                )
        if disable_distributed_log is not None:
            note_unused("Channel.create(disable_distributed_log=)", "a channel's host writes no log of its own")
        if local:
            with _local_lock:
                if name in _local_channels:
                    raise ClusterError(f"A local channel named '{name}' exists; use Channel.connect('{name}').")
                _local_channels[name] = cls(name, maxsize, LocalBackend(name, maxsize))
                return _local_channels[name]
        runtime = current_runtime()
        host: EndpointInfo = runtime.query("channel_host", runtime.node_id)
        channel_id = uuid.uuid4().hex[:16]
        runtime.endpoint.query(host, "channel_create", channel_id, name, maxsize)
        # A handle announces itself to the host, which has to know the channel by then.
        backend = HostedBackend(host, channel_id)
        host, registered_id, _ = runtime.query("channel_add", name, host, channel_id, maxsize)
        if registered_id != channel_id:
            backend.close()
            backend = HostedBackend(host, registered_id)
        return cls(name, maxsize, backend)

    @classmethod
    def connect(cls, name: str, timeout: object = None, *, current_worker: object = None) -> Channel:
        """Connect to a channel by name, waiting until it is created.

        Args:
            name: The channel's name.
            timeout: Seconds to wait; None is ``RLINF_TIMEOUT_SECONDS``. Published code gives a worker here.
            current_worker: Accepted from published code: it is the worker of this process.

        Raises:
            CommTimeoutError: It was not created in time.
        """
        with _local_lock:
            if name in _local_channels:
                return _local_channels[name]
        runtime = current_runtime()
        del current_worker
        seconds = float(timeout) if isinstance(timeout, int | float) else default_timeout_seconds()
        found = AsyncWork[Any](
            runtime.request("channel_find", name),
            describe=f"{runtime.label} waits for channel '{name}' to be created",
        )
        host, channel_id, maxsize = found.wait(seconds).value
        return cls(name, maxsize, HostedBackend(host, channel_id))

    @overload
    def put(
        self, item: Any, weight: float = 1, key: Hashable = DEFAULT_KEY, async_op: Literal[False] = False
    ) -> None: ...
    @overload
    def put(
        self, item: Any, weight: float = 1, key: Hashable = DEFAULT_KEY, *, async_op: Literal[True]
    ) -> AsyncWork[None]: ...
    def put(
        self, item: Any, weight: float = 1, key: Hashable = DEFAULT_KEY, async_op: bool = False
    ) -> AsyncWork[None] | None:
        """Add an item; waits while the key holds ``maxsize`` items.

        Args:
            item: Any object; it may change once this returns.
            weight: What ``get_batch`` counts; > 0.
            key: The queue within the channel.
            async_op: Return an ``AsyncWork`` that ends when the item is in the queue.

        Raises:
            ChannelClosedError: The channel is closed.
            WorkerDiedError: The channel's host is gone, or all workers that took from this full key.
        """
        work = self._give(item, weight, key, wait=True)
        return work if async_op else work.wait()

    def put_nowait(self, item: Any, weight: float = 0, key: Hashable = DEFAULT_KEY) -> None:
        """Add an item, or raise ``asyncio.QueueFull`` when the key holds ``maxsize`` items.

        Args:
            item: As in ``put``.
            weight: As in ``put``; 0, the published default, counts as 1.
            key: As in ``put``.
        """
        try:
            self._give(item, weight or 1, key, wait=False).wait()
        except RejectedError as error:
            raise asyncio.QueueFull(str(error)) from error

    @overload
    def get(
        self, key: Hashable = DEFAULT_KEY, async_op: Literal[False] = False, timeout: float | None = None
    ) -> Any: ...
    @overload
    def get(
        self, key: Hashable = DEFAULT_KEY, *, async_op: Literal[True], timeout: float | None = None
    ) -> AsyncWork[Any]: ...
    def get(self, key: Hashable = DEFAULT_KEY, async_op: bool = False, timeout: float | None = None) -> Any:
        """Take the next item of a key.

        Args:
            key: The queue within the channel.
            async_op: Return an ``AsyncWork`` instead of waiting.
            timeout: Seconds to wait; None waits without limit, with a log line every half minute.

        Raises:
            ChannelClosedError: The channel is closed and drained.
            CommTimeoutError: No item came in time; none is lost.
            WorkerDiedError: A worker that feeds this key, or the channel's host, is gone and no item is left.
        """
        work = self._take(key, None, timeout, single=True)
        return work if async_op else work.wait()

    def get_nowait(self, key: Hashable = DEFAULT_KEY) -> Any:
        """Take the next item of a key, or raise ``asyncio.QueueEmpty``."""
        try:
            return self._take(key, None, None, single=True, wait=False).wait()
        except RejectedError as error:
            raise asyncio.QueueEmpty(str(error)) from error

    def get_batch(
        self,
        target_weight: float = 0,
        key: Hashable = DEFAULT_KEY,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """Take items until the sum of their weights reaches ``target_weight``; at least one.

        Args:
            target_weight: Sum of weights to reach.
            key: The queue within the channel.
            async_op: Return an ``AsyncWork`` instead of waiting.
            timeout: Seconds to wait; None waits without limit.

        Returns:
            The items, oldest first. When the channel is closed on the way, those that were left.
        """
        work = self._take(key, target_weight, timeout)
        return work if async_op else work.wait()

    def qsize(self, key: Hashable = DEFAULT_KEY) -> int:
        """Return the number of items that wait under a key."""
        return self._backend.size(key)

    def peek_all(self, key: Hashable = DEFAULT_KEY) -> list[Any]:
        """Return the items that wait under a key, oldest first, and leave them there.

        For looking into a program: others may take them meanwhile. Items of a channel between processes are copies.
        """
        return self._backend.peek(key)

    def empty(self, key: Hashable = DEFAULT_KEY) -> bool:
        """Whether no item waits under a key."""
        return self.qsize(key) == 0

    def full(self, key: Hashable = DEFAULT_KEY) -> bool:
        """Whether a put under this key would wait."""
        return self.maxsize > 0 and self.qsize(key) >= self.maxsize

    @property
    def is_local(self) -> bool:
        """Whether the channel stays within its process; published name of ``local`` in ``create``."""
        return not isinstance(self._backend, HostedBackend)

    def close(self) -> None:
        """Refuse further puts; getters drain what is left, then get ``ChannelClosedError``. The name is free again."""
        self._backend.close()
        if isinstance(self._backend, HostedBackend):
            current_runtime().query("channel_remove", self.name, self._backend.channel_id)
        else:
            with _local_lock:
                _local_channels.pop(self.name, None)

    def __reduce__(self) -> tuple[Any, ...]:
        if not isinstance(self._backend, HostedBackend):
            raise TypeError(f"Channel '{self.name}' is local to its process; create it with local=False to pass it on.")
        self._backend.pass_on()
        return _connect, (self.name, self.maxsize, self._backend.host, self._backend.channel_id)

    def __repr__(self) -> str:
        return f"Channel({self.name!r}, maxsize={self.maxsize})"

    def take_from(self, key: Hashable, producer: str) -> AsyncWork[Any]:
        """Take the next item of a key that one process feeds; fails at that process's death.

        Args:
            key: The queue within the channel.
            producer: Uid of the feeding process's endpoint.
        """
        return self._take(key, None, None, producer, single=True)

    def _give(self, item: Any, weight: float, key: Hashable, *, wait: bool) -> AsyncWork[None]:
        give_up_dropped()
        future, claim = self._backend.put(item, key=key, weight=weight, wait=wait)
        label = channel_label("put", self.name, key)
        return AsyncWork(future, _nothing, partial(self._waits, "to put into", key), label, claim)

    def _take(
        self,
        key: Hashable,
        target_weight: float | None,
        timeout: float | None,
        producer: str | None = None,
        *,
        single: bool = False,
        wait: bool = True,
    ) -> AsyncWork[Any]:
        give_up_dropped()
        limit = None if timeout is None else (timeout, partial(self._late, key, timeout))
        future, claim = self._backend.get(
            key=key, target_weight=target_weight, wait=wait, producer=producer, timeout=limit
        )
        unpack = self._unpack_single if single else self._backend.unpack
        return AsyncWork(future, unpack, partial(self._waits, "for", key), channel_label("get", self.name, key), claim)

    def _unpack_single(self, granted: Any) -> Any:
        return self._backend.unpack(granted)[0]

    def _late(self, key: Hashable, seconds: float) -> CommTimeoutError:
        return CommTimeoutError(f"{self._waits('for', key)}: nothing came within {seconds:g} s.")

    def _waits(self, what: str, key: Hashable) -> str:
        return f"{_who()} waits {what} channel '{self.name}', key {key!r}"


def _nothing(_: Any) -> None:
    """What a put returns."""


def _connect(name: str, maxsize: int, host: EndpointInfo, channel_id: str) -> Channel:
    return Channel(name, maxsize, HostedBackend(host, channel_id))


def _who() -> str:
    runtime = find_runtime()
    return runtime.label if runtime else "this process"
