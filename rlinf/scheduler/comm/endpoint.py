"""A process's place in the run: requests with replies, one-way notices, and the handlers that serve them.

Every request ends with exactly one of: a reply, the other side's error, or the error of the other side's death. An
error in a handler goes back to the caller; the thread that serves messages never ends before the endpoint is closed.
"""

from __future__ import annotations

import contextlib
import itertools
import pickle
import struct
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rlinf.errors import ClusterError, RLinfError, error_text
from rlinf.scheduler.address import EndpointInfo
from rlinf.scheduler.comm.folders import remove_process
from rlinf.scheduler.comm.futures import Deadlines, Promise, Wait
from rlinf.scheduler.comm.segment_pool import Block, Mapping, Mappings, Reference, SegmentPool, SharedFrame
from rlinf.scheduler.comm.serialization import Buffer, UnreadableFrames
from rlinf.scheduler.comm.transport import Transport
from rlinf.utils.logging import get_logger

_REQUEST, _NOTICE, _REPLY, _ERROR, _RELEASE = range(5)
# Kind and number of a message. They stand before the pickled part: a message whose values cannot be unpickled here (a
# class that this process cannot import) still ends the request that it belongs to.
_KIND = struct.Struct("<bq")
_NO_NUMBER = -1

# A message of at least this many bytes goes through shared memory, but for its frames that are smaller than a page.
_SHARE_BYTES = 1 << 16
_SHARE_FRAME_BYTES = 1 << 12
# The news of a death comes to all processes within this time of the first one, which removes what the dead has left.
_NEWS_SECONDS = 5.0

# Smaller blocks that are released are reported to their owners a moment later, together: waking the thread that reports
# costs more than all the rest of such a message. An owner that waits for a larger one would have to make another.
_TELL_AT_ONCE_BYTES = 4 << 20
_TELL_SECONDS = 0.002

Frame = Buffer | SharedFrame
# A block and which frames of the message lie in it: (index, offset, length) of each.
_FramesIn = tuple[Reference, tuple[tuple[int, int, int], ...]]


@dataclass(slots=True)
class Reply:
    """The answer to a request: a small value and, where there is one, an opaque payload."""

    value: Any
    frames: list[memoryview]


@dataclass(slots=True)
class Call:
    """A request or notice as its handler sees it.

    Attributes:
        endpoint: The endpoint that received it.
        sender: Where it came from.
        request_id: Number of the request, or None for a notice.
        args: Arguments of the operation.
        frames: Opaque payload; where the endpoint keeps shared memory as it is, some may be ``SharedFrame``s.
    """

    endpoint: Endpoint
    sender: EndpointInfo
    request_id: int | None
    args: tuple[Any, ...]
    frames: list[Any]

    def reply(self, value: Any = None, frames: Sequence[Frame] = ()) -> None:
        """Answer the request; does nothing for a notice."""
        if self.request_id is not None:
            self.endpoint.send(self.sender, _REPLY, self.request_id, (value, None), frames)

    def fail(self, error: BaseException) -> None:
        """Answer the request with an error."""
        if self.request_id is not None:
            self.endpoint.send(self.sender, _ERROR, self.request_id, (_picklable(error), None), ())


class Request(Promise[Reply]):
    """A request's reply: a future that the endpoint forgets when it is cancelled.

    Attributes:
        number: What both sides call the request.
        peer: Uid of the process that it was sent to.

    Args:
        number: See above.
        peer: See above.
        forget: Called with the number when the request is given up.
        wait: See ``Promise``.
    """

    def __init__(self, number: int, peer: str, forget: Callable[[int], object], wait: Wait | None) -> None:
        super().__init__(wait)
        self.number = number
        self.peer = peer
        self._forget = forget

    def cancel(self) -> bool:
        """As ``Future.cancel``: a reply that comes later is dropped."""
        cancelled = super().cancel()
        if cancelled:
            self._forget(self.number)
        return cancelled

    def give_up(self, error: BaseException) -> bool:
        """End it with ``error`` instead of a reply; False when it has ended before."""
        ended = self.end(error=error)
        if ended:
            self._forget(self.number)
        return ended


Handler = Callable[[Call], None]


class Endpoint:
    """Requests, replies and notices over one transport.

    Args:
        namespace: Name of the run.
        node_id: Ray's id of this node.
        keys: Public and secret key of the run.
        listen_ip: Address of the interface for other nodes, or None in a run on one node.
        read_while_waiting: Whether a thread that waits for a message reads it itself, which is faster. Not for threads
            that a signal's exception may interrupt: the message it has in hand would be lost.
    """

    def __init__(
        self,
        *,
        namespace: str,
        node_id: str,
        keys: tuple[bytes, bytes],
        listen_ip: str | None,
        read_while_waiting: bool = False,
    ) -> None:
        self._namespace = namespace
        self._read_while_waiting = read_while_waiting
        self._keep_shared = False
        self._released: deque[tuple[EndpointInfo, tuple[str, int], Mapping | None]] = deque()
        self._will_tell = False
        self._mappings = Mappings(self._on_unmapped)
        self._handlers: dict[str, Handler] = {}
        self._pending: dict[int, Request] = {}
        self._dead: dict[str, BaseException] = {}
        self._lock = threading.Lock()
        # Notified when a peer has died, or when deaths are no longer reported.
        self._news = threading.Condition(self._lock)
        self._numbers = itertools.count()
        self._closed = False
        self._run_error: BaseException | None = None
        self._transport = Transport(
            namespace=namespace,
            node_id=node_id,
            keys=keys,
            listen_ip=listen_ip,
            on_message=self._receive,
            on_lost=self._peer_lost,
        )
        self.info = self._transport.info
        self.loop = self._transport.loop
        self.deadlines = Deadlines(self.loop)
        self.segments = SegmentPool(namespace, self.info.uid)

    def serve(self, operation: str, handler: Handler) -> None:
        """Call ``handler`` for each message with this operation, one message at a time."""
        self._handlers[operation] = handler

    def keep_shared(self) -> None:
        """Hand handlers payloads in shared memory as they are, to be passed on; they outlive their senders."""
        self._keep_shared = True

    def say_farewell(self) -> None:
        """Send what is queued for peers of other nodes even after their death was announced, should they be back.

        For a process whose few messages say who has died.
        """
        self._transport.say_farewell()

    def serve_on_a_thread(self) -> None:
        """Read messages on a thread that does nothing else, which is faster: for processes that only serve."""
        threading.Thread(
            target=self._transport.wait, args=(Promise[Any](), None), name="rlinf-serve", daemon=True
        ).start()

    def promise(self) -> Promise[Any]:
        """Return a future for something that a message to this process brings about."""
        return Promise(self._transport.wait if self._read_while_waiting else None)

    def request(
        self, peer: EndpointInfo, operation: str, args: tuple[Any, ...] = (), frames: Sequence[Frame] = ()
    ) -> Request:
        """Send a request; the future ends with the reply, the other side's error, or the error of its death."""
        number = next(self._numbers)
        wait = self._transport.wait if self._read_while_waiting else None
        future = Request(number, peer.uid, self._forget, wait)
        with self._lock:
            error = self._dead.get(peer.uid) or self._run_error or (_closed_error() if self._closed else None)
            if error is None:
                self._pending[number] = future
        if error is not None:
            future.set_exception(error)
            return future
        try:
            self.send(peer, _REQUEST, number, (operation, args), frames)
        except Exception as failure:
            self._forget(number)
            if not isinstance(failure, RLinfError):
                raise
            future.set_exception(failure)
        return future

    def query(self, peer: EndpointInfo, operation: str, *args: Any, timeout: float | None = None) -> Any:
        """Send a request and wait for the value of its reply; not from the endpoint's own thread."""
        assert not self._transport.on_own_thread(), "waiting here would block the thread that receives the reply"
        return self.request(peer, operation, args).result(timeout=timeout).value

    def notify(
        self, peer: EndpointInfo, operation: str, args: tuple[Any, ...] = (), frames: Sequence[Frame] = ()
    ) -> None:
        """Send a message that gets no reply."""
        self.send(peer, _NOTICE, _NO_NUMBER, (operation, args), frames)

    def send(
        self, peer: EndpointInfo, kind: int, number: int, values: tuple[Any, Any], frames: Sequence[Frame]
    ) -> None:
        """Send two plain values and a payload; what is sent to a dead peer is dropped."""
        if peer.uid in self._dead:
            return
        places: tuple[_FramesIn, ...] = ()
        blocks: Sequence[Block] = ()
        inline: Sequence[Buffer]
        if not frames or (len(frames) == 1 and type(frames[0]) is bytes and len(frames[0]) < _SHARE_BYTES):
            inline = frames  # type: ignore[assignment]  # most messages
        elif self._transport.is_local(peer):
            inline, places, blocks = self._by_reference(frames)
        else:
            inline = [frame.view() if isinstance(frame, SharedFrame) else frame for frame in frames]
        # Before the blocks are held: values that cannot be pickled leave nothing behind.
        header = _KIND.pack(kind, number) + pickle.dumps((*values, places), protocol=5)
        for block in blocks:
            block.hold(peer.uid)
        try:
            self._transport.send(peer, [header, *inline])
        except ClusterError as error:
            for block in blocks:
                block.release(peer.uid)
            if kind not in {_REQUEST, _NOTICE}:  # no caller waits for the effect of a reply
                get_logger(__name__).warning("An answer to %s is lost: %s", peer.uid, error)
            elif peer.uid not in self._dead:  # it may have died in between
                raise
        if places and peer.uid in self._dead:
            self.segments.reference_counts.drop(peer.uid)

    def reserve(self, num_bytes: int) -> memoryview | None:
        """Return memory that is sent to processes of this node without a copy; see ``SegmentPool.reserve``."""
        return self.segments.reserve(num_bytes)

    def share(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        """Copy a large payload into shared memory, so that sending it to many processes of this node copies it once."""
        sizes = [0 if isinstance(frame, SharedFrame) else memoryview(frame).nbytes for frame in frames]
        if sum(sizes) < _SHARE_BYTES:
            return frames
        large = [index for index, size in enumerate(sizes) if size >= _SHARE_FRAME_BYTES]
        shared = self.segments.write([memoryview(frames[index]).cast("B") for index in large])  # type: ignore[arg-type]
        if shared is None:
            return frames
        result = list(frames)
        for index, frame in zip(large, shared, strict=True):
            result[index] = frame
        return result

    def snapshot(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        """Return a copy of a payload whose memory may change: in shared memory where it is large."""
        return [frame if isinstance(frame, SharedFrame) else bytes(frame) for frame in self.share(frames)]

    def peer_died(self, uid: str, error: BaseException) -> None:
        """Fail all requests that wait for this peer, now and later; take back the memory that it was looking at."""
        with self._news:
            self._dead[uid] = error
            self._news.notify_all()
        self._fail_requests(uid, error)
        self._transport.forget(uid)
        self.segments.reference_counts.drop(uid)
        self._mappings.forget(uid)
        remove_process(self._namespace, uid)

    def _peer_lost(self, uid: str, address: str, reason: OSError) -> None:
        """Fail all requests to a peer that cannot be reached, and was not declared dead."""
        error = ClusterError(
            f"Process {uid} of this node is not known to be gone, but cannot be reached at {address}: {reason}. What "
            "was sent to it is lost. Nothing may remove that file while the run lasts."
        )
        get_logger(__name__).error("%s", error)
        self._fail_requests(uid, error)

    def _fail_requests(self, uid: str, error: BaseException) -> None:
        with self._lock:
            lost = [number for number, request in self._pending.items() if request.peer == uid]
            futures = [self._pending.pop(number) for number in lost]
        for future in futures:
            future.end(error=error)

    def fail_pending(self, error: BaseException) -> None:
        """Fail all requests, now and later, since deaths of their peers are no longer reported."""
        with self._news:
            self._run_error = error
            self._news.notify_all()
            futures = list(self._pending.values())
            self._pending.clear()
        for future in futures:
            future.end(error=error)

    def is_dead(self, uid: str) -> BaseException | None:
        """Return the error of this peer's death, or None while it lives."""
        return self._dead.get(uid)

    def close(self) -> None:
        """Leave the run: pending requests fail, the thread ends."""
        with self._news:
            self._closed = True
            self._news.notify_all()
            futures = list(self._pending.values())
            self._pending.clear()
        for future in futures:
            future.end(error=_closed_error())
        self._transport.close()
        self.segments.close()

    def _forget(self, number: int) -> Request | None:
        with self._lock:
            return self._pending.pop(number, None)

    def _by_reference(self, frames: Sequence[Frame]) -> tuple[Sequence[Buffer], tuple[_FramesIn, ...], Sequence[Block]]:
        """Split a payload for a process of this node: what travels in the message, what lies where in which blocks."""
        frames = self.share(frames)
        if not any(isinstance(frame, SharedFrame) for frame in frames):
            return frames, (), ()  # type: ignore[return-value]
        inline: list[Buffer] = []
        places: dict[Reference, list[tuple[int, int, int]]] = defaultdict(list)
        blocks: dict[Reference, Block] = {}
        for index, frame in enumerate(frames):
            if isinstance(frame, SharedFrame):
                blocks[frame.block.reference] = frame.block
                places[frame.block.reference].append((index, frame.offset, frame.length))
            else:
                inline.append(frame)
        found = tuple((reference, tuple(frames_in)) for reference, frames_in in places.items())
        return inline, found, list(blocks.values())

    def _receive(self, sender: EndpointInfo, frames: list[memoryview]) -> None:
        if sender.uid in self._dead:
            return  # it was given up, or sent this before it died: what it held and requested has been given to others
        kind, number = _KIND.unpack_from(frames[0])
        try:
            first, second, places = pickle.loads(frames[0][_KIND.size :])
        except Exception as error:  # noqa: BLE001 - classes of another process may raise anything here
            self._refuse(sender, kind, number, error)
            return
        if kind == _RELEASE:
            for path, use in first:
                self.segments.reference_counts.release(path, use, sender.uid)
            return
        payload: list[Any] = frames[1:]
        if places:
            payload = self._gather(payload, places, sender)
        if kind in {_REPLY, _ERROR}:
            request = self._forget(number)
            if request is None:
                return
            if kind == _REPLY:
                request.end(Reply(first, payload))
            else:
                request.end(error=first)
            return
        call = Call(self, sender, None if number == _NO_NUMBER else number, second, payload)
        if kind == _REQUEST and isinstance(payload, UnreadableFrames):
            call.fail(payload.reason())
        else:
            self._handle(first, call)

    def _refuse(self, sender: EndpointInfo, kind: int, number: int, error: Exception) -> None:
        """End what a message belongs to whose values cannot be read here."""
        what = "request" if kind == _REQUEST else "answer" if kind in {_REPLY, _ERROR} else "message"
        failure = ClusterError(
            f"A{'n' if what == 'answer' else ''} {what} of {sender.uid} cannot be read in process {self.info.uid}: "
            f"{type(error).__name__}: {error}. Its classes must be importable on both sides, in the same version."
        )
        if kind == _REQUEST:
            Call(self, sender, number, (), []).fail(failure)
        elif what == "answer":
            request = self._forget(number)
            if request is not None:
                request.end(error=failure)
        else:
            get_logger(__name__).error("%s", failure)

    def _gather(self, inline: list[memoryview], places: tuple[_FramesIn, ...], sender: EndpointInfo) -> list[Any]:
        """Put the frames of a message in their order, those in shared memory mapped or kept as they are."""
        found: dict[int, Any] = {}
        try:
            for reference, frames in places:
                if self._keep_shared:
                    block = self.segments.adopt(reference, partial(self._on_released, sender, reference, None))
                    found.update((index, SharedFrame(block, *place)) for index, *place in frames)
                else:
                    memory = self._mappings.open(reference, sender)
                    found.update((index, memory[start : start + length]) for index, start, length in frames)
        except OSError as error:
            get_logger(__name__).error("A message's shared memory cannot be read: %s", error)
            return UnreadableFrames(partial(self._why_unreadable, sender.uid, str(error)))
        rest = iter(inline)
        return [found[index] if index in found else next(rest) for index in range(len(inline) + len(found))]

    def _why_unreadable(self, uid: str, cause: str) -> BaseException:
        """Return the death of a message's sender, the news of which may be on its way, or else what the system says."""
        with self._news:
            if not self._transport.on_own_thread():
                self._news.wait_for(lambda: uid in self._dead or self._run_error or self._closed, _NEWS_SECONDS)
            error = self._dead.get(uid) or self._run_error
        return error or ClusterError(f"A message from {uid} cannot be read: {cause}.")

    def _on_unmapped(self, owner: EndpointInfo, mapping: Mapping) -> None:
        self._on_released(owner, (*mapping.block, len(mapping.memory)), mapping)

    def _on_released(self, owner: EndpointInfo, reference: Reference, mapping: Mapping | None) -> None:
        # Called by finalizers, anywhere: only what is safe inside of everything else.
        path, use, num_bytes = reference
        self._released.append((owner, (path, use), mapping))
        with contextlib.suppress(RuntimeError):  # the loop has ended
            if num_bytes >= _TELL_AT_ONCE_BYTES:
                self.loop.call_soon_threadsafe(self._tell_releases)
            elif not self._will_tell:
                self._will_tell = True
                self.loop.call_soon_threadsafe(self.loop.call_later, _TELL_SECONDS, self._tell_releases)

    def _tell_releases(self) -> None:
        self._will_tell = False
        blocks: dict[EndpointInfo, list[tuple[str, int]]] = defaultdict(list)
        while self._released:
            owner, block, mapping = self._released.popleft()
            if mapping is not None and owner.uid not in self._dead:
                self._mappings.keep(mapping)
            blocks[owner].append(block)
        if blocks and not self._will_tell:
            # More will follow: to look again soon costs less than to be woken.
            self._will_tell = True
            self.loop.call_later(_TELL_SECONDS, self._tell_releases)
        for owner, released in blocks.items():
            with contextlib.suppress(ClusterError):  # who has left has taken its memory back
                self.send(owner, _RELEASE, _NO_NUMBER, (released, None), ())

    def _handle(self, operation: str, call: Call) -> None:
        handler = self._handlers.get(operation)
        try:
            if handler is None:
                raise ClusterError(f"Endpoint {self.info.uid} does not serve '{operation}'.")
            handler(call)
        except Exception as error:  # noqa: BLE001 - the boundary: one bad message must not end the thread that serves all
            if call.request_id is None:
                get_logger(__name__).exception("Handling '%s' from %s failed.", operation, call.sender.uid)
            else:
                call.fail(error)


def _closed_error() -> ClusterError:
    return ClusterError("The cluster is closed.")


def _picklable(error: BaseException) -> BaseException:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - any failure to travel means that only its text can
        return RLinfError(f"{type(error).__name__}: {error_text(error)}")
    return error
