"""The small actor that holds a node's channels. Items stay the opaque frames they came as."""

from __future__ import annotations

import asyncio
from typing import Any

import ray

from rlinf.errors import ChannelClosedError, WorkerDiedError
from rlinf.scheduler.address import EndpointInfo, RunSpec, WorkerAddress
from rlinf.scheduler.channel.queue import Answer, ChannelQueue, Item
from rlinf.scheduler.comm.endpoint import Call
from rlinf.scheduler.process_watch import ProcessWatch
from rlinf.scheduler.runtime import Runtime, closed_error, end_if_declared_dead
from rlinf.utils.logging import configure_worker_logging

# Opaque, and in shared memory where they are large: an item outlives its producer.
Frames = list[Any]


class ChannelHost:
    """Serves the channels of one node, and watches its workers where the manager is on another one.

    All state is touched by handlers of messages, which run one at a time.

    Args:
        runtime: The host process's own runtime.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._queues: dict[str, ChannelQueue[Frames]] = {}
        self._endpoint = runtime.endpoint
        self._watch = ProcessWatch(runtime.endpoint.loop)
        runtime.endpoint.keep_shared()
        serve = runtime.endpoint.serve
        serve("channel_create", self._create)
        serve("channel_open", self._open)
        serve("channel_leave", self._leave)
        serve("channel_put", self._put)
        serve("channel_get", self._get)
        serve("channel_ack", self._acknowledge)
        serve("channel_cancel", self._cancel)
        serve("channel_size", self._size)
        serve("channel_peek", self._peek)
        serve("channel_close", self._close)
        serve("died", lambda call: self._died(*call.args))
        serve("closed", lambda call: self._group_closed(*call.args))
        serve("started", lambda call: self._started(*call.args))
        serve("watch", self._watch_worker)
        runtime.endpoint.serve_on_a_thread()
        runtime.introspection.add("channels", self._describe)

    def _create(self, call: Call) -> None:
        channel_id, name, maxsize = call.args
        self._queues[channel_id] = ChannelQueue(name, maxsize)
        call.reply()

    def _open(self, call: Call) -> None:
        queue = self._queues.get(call.args[0])
        if queue is not None:
            queue.open(call.sender.uid)

    def _leave(self, call: Call) -> None:
        channel_id, passed_on = call.args
        if channel_id in self._queues:
            self._queues[channel_id].leave(call.sender.uid, passed_on=passed_on)
            self._tidy(channel_id)

    def _put(self, call: Call) -> None:
        channel_id, key, weight, wait = call.args
        # The frames may live in the transport's buffers; they are kept as they are.
        self._queue(channel_id).put(
            call.request_id, call.sender.uid, key, call.frames, weight=weight, wait=wait, answer=_answer(call)
        )

    def _get(self, call: Call) -> None:
        channel_id, key, target_weight, wait, producer, taken = call.args
        queue = self._queue(channel_id)
        for earlier in taken:
            queue.acknowledge(call.sender.uid, earlier)
        queue.get(
            call.request_id,
            call.sender.uid,
            key,
            target_weight=target_weight,
            wait=wait,
            answer=_answer(call),
            producer=producer,
        )

    def _acknowledge(self, call: Call) -> None:
        channel_id, taken = call.args
        if channel_id in self._queues:
            for request in taken:
                self._queues[channel_id].acknowledge(call.sender.uid, request)
            self._tidy(channel_id)

    def _cancel(self, call: Call) -> None:
        channel_id, request, key = call.args
        if channel_id in self._queues:
            self._queues[channel_id].cancel(call.sender.uid, request, key)
            self._tidy(channel_id)

    def _size(self, call: Call) -> None:
        channel_id, key = call.args
        call.reply(self._queues[channel_id].size(key) if channel_id in self._queues else 0)

    def _peek(self, call: Call) -> None:
        channel_id, key = call.args
        _answer(call)(self._queues[channel_id].peek(key) if channel_id in self._queues else [], None)

    def _close(self, call: Call) -> None:
        if call.args[0] in self._queues:
            self._queues[call.args[0]].close()
            self._tidy(call.args[0])
        call.reply()

    def _died(self, address: WorkerAddress | None, uid: str | None, error: WorkerDiedError, closed: bool) -> None:
        end_if_declared_dead(self._endpoint, uid, error)
        if uid is not None:
            # First, so that what its gets were granted is not sent to it again.
            self._endpoint.peer_died(uid, error)
            for channel_id, queue in list(self._queues.items()):
                queue.owner_gone(uid, error, closed=closed)
                self._tidy(channel_id)

    def _group_closed(self, name: str, incarnation: int, uids: dict[int, str | None]) -> None:
        for rank, uid in uids.items():
            address = WorkerAddress(name, rank, incarnation)
            self._died(address, uid, closed_error(address), True)

    def _started(self, name: str, incarnation: int, world_size: int) -> None:
        for queue in self._queues.values():
            queue.group_started(name)

    def _watch_worker(self, call: Call) -> None:
        """Notify the manager when a worker's process has ended."""
        address, process = call.args

        def notify() -> None:
            self._endpoint.notify(call.sender, "ended", (address, process.end))

        # The kernel wakes the loop, on whose thread messages are not served here.
        self._endpoint.loop.call_soon_threadsafe(self._watch.add, process, notify)

    def _describe(self) -> list[dict[str, Any]]:
        return [queue.describe() for queue in self._queues.values() if not queue.closed]

    def _queue(self, channel_id: str) -> ChannelQueue[Frames]:
        if channel_id not in self._queues:
            raise ChannelClosedError("This channel is closed and has no items left.")
        return self._queues[channel_id]

    def _tidy(self, channel_id: str) -> None:
        """Remove a closed channel without items, and free the memory of items that were taken."""
        if self._queues[channel_id].is_spent:
            del self._queues[channel_id]
        self._endpoint.segments.reference_counts.settle()


def _answer(call: Call) -> Answer:
    def answer(items: list[Item[Frames]], error: BaseException | None) -> None:
        if error is not None:
            call.fail(error)
            return
        frames = [frame for item in items for frame in item.payload]
        call.reply([len(item.payload) for item in items], frames)

    return answer


class ChannelHostActor:
    """The Ray actor around ``ChannelHost``."""

    def __init__(self, spec: RunSpec) -> None:
        configure_worker_logging("channel host", None)
        node_id = ray.get_runtime_context().get_node_id()
        self._runtime = Runtime(spec, node_id=node_id, node_ip=ray.util.get_node_ip_address(), label="channel host")
        self._host = ChannelHost(self._runtime)

    async def start(self) -> EndpointInfo:
        """Return where the host listens."""
        return self._runtime.endpoint.info

    async def alive(self) -> None:
        """Never return: the manager learns of the host's death from the failure of this call."""
        await asyncio.Event().wait()

    def __repr__(self) -> str:
        return "channels"
