"""Nodes of one process, whose waits are given up."""

import asyncio
import dataclasses
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from rlinf.scheduler import Channel
from rlinf.scheduler.address import RunSpec, WorkerAddress
from rlinf.scheduler.channel.channel_backend import HostedBackend
from rlinf.scheduler.channel.host import ChannelHost
from rlinf.scheduler.comm.mailbox import MessageHeader
from rlinf.scheduler.comm.serialization import encode
from rlinf.scheduler.comm.transport import new_keys, remove_socket_folder
from rlinf.scheduler.comm.work import AsyncWork
from rlinf.scheduler.messaging import Messenger
from rlinf.scheduler.runtime import Runtime, enter_runtime, leave_runtime

ME = WorkerAddress("me", 0, 1)


class Node:
    """A process's runtime and a channel host, in this process."""

    def __init__(self) -> None:
        self.spec = RunSpec(uuid.uuid4().hex[:8], new_keys(), spans_nodes=False, log_dir=None)
        self.other = self.start("channel host")
        self.host = ChannelHost(self.other)
        # All of the manager that closing a channel needs.
        self.other.endpoint.serve("channel_remove", lambda call: call.reply())
        self.spec = dataclasses.replace(self.spec, manager=self.other.endpoint.info)
        self.runtime = self.start("me")
        enter_runtime(self.runtime)

    def start(self, label: str) -> Runtime:
        return Runtime(self.spec, node_id="n0", node_ip="127.0.0.1", label=label)

    def channel(self, maxsize: int = 0) -> Channel:
        channel_id = uuid.uuid4().hex[:8]
        self.runtime.endpoint.query(self.other.endpoint.info, "channel_create", channel_id, "c", maxsize)
        return Channel("c", maxsize, HostedBackend(self.other.endpoint.info, channel_id))

    def close(self) -> None:
        leave_runtime(self.runtime)
        self.other.close()
        remove_socket_folder(self.spec.namespace)


class Inbox:
    """Receives and arrivals of one sender's messages, with the methods of a channel."""

    def __init__(self, runtime: Runtime) -> None:
        self._mailbox = runtime.mailbox
        self._messenger = Messenger(ME)
        self._source = (uuid.uuid4().hex, 0)
        self._numbers = iter(range(1_000_000))

    def put(self, item: object) -> None:
        self._mailbox.deliver(MessageHeader(self._source, 1, next(self._numbers), "t"), encode(item))

    def get(self, timeout: float | None = None, async_op: bool = False) -> Any:
        work = self._messenger.recv(*self._source, tag="t", timeout=timeout)
        return work if async_op else work.wait()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


async def give_up(work: Any, meanwhile: Callable[[], Any]) -> None:
    """Wait on the loop, do something that blocks the loop until the work has ended, and cancel the wait."""
    waiting = asyncio.ensure_future(work.async_wait())
    await asyncio.sleep(0.02)
    meanwhile()
    until(work.done)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def _cancel(work: AsyncWork[list[Any]]) -> None:
    with pytest.raises((asyncio.TimeoutError, TimeoutError)):
        await asyncio.wait_for(work.async_wait(), 0.05)


async def _cancel_now(work: AsyncWork[None] | AsyncWork[Any]) -> None:
    waiting = asyncio.ensure_future(work.async_wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


# Closed channels


def num_queues(node: Node) -> int:
    return len(node.host._queues)
