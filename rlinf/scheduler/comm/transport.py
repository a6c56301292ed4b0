"""Frames between processes; the one package-internal interface to how bytes travel.

On one node a process listens on a Unix socket inside a folder only its user may enter (``local.py``); in a run over
several nodes also on ``tcp://``, through ZeroMQ, for holders of the run's key. One thread runs an asyncio loop that is
woken by the sockets; there is no polling and no thread per peer. Sending happens on the caller's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import struct
import threading
import uuid
from collections.abc import Callable, Sequence

import zmq
from zmq.utils import z85

from rlinf.errors import ClusterError
from rlinf.scheduler.address import EndpointInfo
from rlinf.scheduler.comm.folders import RunFolder, remove_run_folders, socket_base
from rlinf.scheduler.comm.local import LocalSockets
from rlinf.scheduler.comm.serialization import Buffer
from rlinf.utils.logging import get_logger

# Called with the sender and the frames of a message, by one thread at a time.
MessageHandler = Callable[[EndpointInfo, list[memoryview]], None]

# Unit of a message's layout, so that its buffers stay aligned for every element type.
_WORD_BYTES = 8
_PADDING = tuple(bytes(count) for count in range(_WORD_BYTES))
_LAYOUTS = tuple(struct.Struct(f"<{count + 1}Q") for count in range(16))
# A system call takes at most 1,024 parts.
_MAX_PARTS = 512
# Below this a second copy costs less than ZeroMQ's book-keeping for memory that is not its own.
_COPY_BELOW_BYTES = 65536
# Messages taken from a socket before other work of the loop gets a turn.
_BATCH = 256
# A network that was cut, or a machine that was suspended, is back within this time, or not in this run.
_FAREWELL_SECONDS = 600.0


class Transport:
    """Sends frames to peers and hands received ones to ``on_message``.

    Args:
        namespace: Name of the run; processes of one run on one node share a socket folder.
        node_id: Ray's id of this node.
        keys: Public and secret key of the run.
        listen_ip: Address of the interface for other nodes, or None to stay on this node.
        on_message: Called with the sender and the frames of each message, by one thread at a time: the transport's
            own, or one that waits in ``wait``.
        on_lost: Called on the transport's thread with the uid of a peer that cannot be reached although it was not
            forgotten, where it listens, and why.
    """

    def __init__(
        self,
        *,
        namespace: str,
        node_id: str,
        keys: tuple[bytes, bytes],
        listen_ip: str | None,
        on_message: MessageHandler,
        on_lost: Callable[[str, str, OSError], None],
    ) -> None:
        self._on_message = on_message
        self._dispatching = threading.Lock()
        self._closed = False
        self._folder = RunFolder(socket_base(), namespace)
        self.loop = asyncio.new_event_loop()
        uid = uuid.uuid4().hex[:16]
        self._path = self._folder.path / uid
        self._network = None if listen_ip is None else _Network(keys, listen_ip, self.loop, self._dispatch)
        tcp = self._network.address if self._network else None
        self.info = EndpointInfo(uid=uid, node_id=node_id, ipc=str(self._path), tcp=tcp)
        greeting = pickle.dumps(self.info)
        self._greeting = _pad_greeting(greeting)
        self._local = LocalSockets(
            self._path,
            self.loop,
            greeting=greeting,
            on_greeting=pickle.loads,
            on_message=self._dispatch,
            on_lost=on_lost,
        )
        # Waits until a future is done or seconds have passed; the waiting thread may read messages meanwhile.
        self.wait = self._local.wait
        self._thread = threading.Thread(target=self._run, name="rlinf-io", daemon=True)
        self._thread.start()

    def is_local(self, peer: EndpointInfo) -> bool:
        """Whether ``peer`` is a process of this node."""
        return peer.node_id == self.info.node_id

    def send(self, peer: EndpointInfo, frames: Sequence[Buffer]) -> None:
        """Queue a message for ``peer``; when this returns the buffers may change. Keeps order per peer and thread.

        Raises:
            ClusterError: The transport is closed, or the peer cannot be reached from this node.
        """
        if self._closed:
            raise ClusterError("This process has left the run; its cluster is closed.")
        try:
            if self.is_local(peer):
                self._local.send(peer.uid, peer.ipc, *_pack(frames))
            elif self._network is None or peer.tcp is None:
                raise ClusterError(f"Endpoint {peer.uid} on another node does not listen on the network.")
            else:
                self._network.send(peer, b"".join([self._greeting, *_pack(frames)[0]]))
        except (OSError, zmq.ZMQError) as error:
            raise ClusterError(f"Cannot send to endpoint {peer.uid}: {error}.") from error

    def forget(self, uid: str) -> None:
        """Close the connection to a dead peer and drop what was queued for it."""
        self._local.forget(uid)
        if self._network is not None:
            self._network.forget(uid)

    def say_farewell(self) -> None:
        """Give what is queued for a dead peer of another node some minutes to arrive: it may only be out of reach."""
        if self._network is not None:
            self._network.farewell_seconds = _FAREWELL_SECONDS

    def on_own_thread(self) -> bool:
        """Whether this thread receives messages, so that waiting for one would never end."""
        return threading.current_thread() is self._thread or self._local.on_reading_thread()

    def close(self, linger_seconds: float = 0.5) -> None:
        """Stop the thread and close all sockets; queued messages get ``linger_seconds`` to leave."""
        if self._closed:
            return
        self._closed = True
        self._local.linger(linger_seconds)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout=5)
        self._local.close()
        if self._network is not None:
            self._network.close(linger_seconds)
        self._path.unlink(missing_ok=True)
        self._folder.close()

    def _dispatch(self, peer: EndpointInfo, message: memoryview) -> None:
        with self._dispatching:
            try:
                self._on_message(peer, _unpack(message))
            except Exception:  # noqa: BLE001 - the boundary: one bad message must not end the thread that serves all
                get_logger(__name__).exception("A message from %s cannot be handled.", peer.uid)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self._local.start()
        if self._network is not None:
            self._network.start()
        self.loop.run_forever()


class _Network:
    """Encrypted connections with other nodes.

    Args:
        keys: Public and secret key of the run.
        listen_ip: Address of the interface to listen on.
        loop: The event loop of the transport's thread.
        on_message: Called on that thread with the sender and each message.
    """

    def __init__(
        self,
        keys: tuple[bytes, bytes],
        listen_ip: str,
        loop: asyncio.AbstractEventLoop,
        on_message: Callable[[EndpointInfo, memoryview], None],
    ) -> None:
        self.farewell_seconds = 0.0
        self._keys = keys
        self._loop = loop
        self._on_message = on_message
        self._context = zmq.Context(io_threads=1)
        self._peers: dict[str, tuple[threading.Lock, zmq.Socket[bytes]]] = {}
        self._peers_lock = threading.Lock()
        # Connections to peers that were given up, as long as their last messages may still arrive.
        self._leaving: list[zmq.Socket[bytes]] = []
        self._greetings: dict[bytes, EndpointInfo] = {}
        self._zap = self._bind_gatekeeper()
        host = f"[{listen_ip}]" if ":" in listen_ip else listen_ip
        self._socket = self._bind(f"tcp://{host}:*")
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def start(self) -> None:
        """Read on the loop's thread from now on; call it there."""
        self._loop.add_reader(self._socket.fileno(), self._drain)
        self._loop.call_soon(self._drain)
        self._loop.add_reader(self._zap.fileno(), self._admit)
        self._loop.call_soon(self._admit)

    def send(self, peer: EndpointInfo, message: bytes) -> None:
        """Queue a message; keeps order per peer and thread."""
        with self._peers_lock:
            if peer.uid not in self._peers:
                self._peers[peer.uid] = (threading.Lock(), self._connect(peer))
            lock, socket = self._peers[peer.uid]
        with lock:
            # One frame and one call: a signal's exception between the parts of a multi-part message would leave it
            # unfinished, and what is sent next would become its end.
            socket.send(message, 0, copy=len(message) < _COPY_BELOW_BYTES)

    def forget(self, uid: str) -> None:
        """Close the connection to a dead peer and drop what was queued for it."""
        with self._peers_lock:
            entry = self._peers.pop(uid, None)
        if entry is None:
            return
        lock, socket = entry
        if self.farewell_seconds:
            self._leaving.append(socket)
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._loop.call_later, self.farewell_seconds, self._leave, socket)
            return
        with lock:
            socket.close(linger=0)

    def _leave(self, socket: zmq.Socket[bytes]) -> None:
        self._leaving.remove(socket)
        socket.close(linger=0)

    def close(self, linger_seconds: float) -> None:
        """Close all sockets; the loop must have ended."""
        self._socket.close(linger=0)
        self._zap.close(linger=0)
        with self._peers_lock:
            peers = list(self._peers.values())
            self._peers.clear()
        for lock, socket in peers:
            with lock:
                socket.close(linger=int(linger_seconds * 1000))
        for socket in self._leaving:
            socket.close(linger=0)
        self._context.term()

    def _connect(self, peer: EndpointInfo) -> zmq.Socket[bytes]:
        assert peer.tcp is not None, "checked before"
        socket = self._context.socket(zmq.PUSH)
        socket.set_hwm(0)
        socket.linger = 0
        socket.curve_publickey, socket.curve_secretkey = self._keys
        socket.curve_serverkey = self._keys[0]
        socket.connect(peer.tcp)
        return socket

    def _bind(self, target: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.PULL)
        socket.set_hwm(0)
        socket.linger = 0
        socket.curve_server = True
        socket.curve_publickey, socket.curve_secretkey = self._keys
        socket.zap_domain = b"rlinf"
        socket.bind(target)
        return socket

    def _bind_gatekeeper(self) -> zmq.Socket[bytes]:
        """Bind ZeroMQ's authentication hook: it is called for every connection to an encrypted socket."""
        socket = self._context.socket(zmq.REP)
        socket.linger = 0
        socket.bind("inproc://zeromq.zap.01")
        return socket

    def _drain(self) -> None:
        for _ in range(_BATCH):
            try:
                message = memoryview(self._socket.recv(flags=zmq.NOBLOCK, copy=False).buffer).cast("B")
            except zmq.Again:
                return
            # Every message starts with its sender's greeting: a socket for many peers does not tell them apart.
            try:
                greeting, body = _split(message)
                if greeting not in self._greetings:
                    self._greetings[greeting] = pickle.loads(greeting)
                peer = self._greetings[greeting]
            except Exception:  # noqa: BLE001 - the boundary, as above
                get_logger(__name__).exception("A message from another node does not say whose it is.")
                continue
            self._on_message(peer, body)
        # The socket's descriptor signals changes, not levels: the rest must be polled.
        self._loop.call_soon(self._drain)

    def _admit(self) -> None:
        with contextlib.suppress(zmq.Again):
            while True:
                version, request_id, _, address, _, mechanism, *credentials = self._zap.recv_multipart(zmq.NOBLOCK)
                known = mechanism == b"CURVE" and credentials == [z85.decode(self._keys[0])]
                if not known:
                    get_logger(__name__).warning("Refused a connection from %s: not of this run.", address.decode())
                status = (b"200", b"OK") if known else (b"400", b"unknown key")
                self._zap.send_multipart([version, request_id, *status, b"", b""])


def new_keys() -> tuple[bytes, bytes]:
    """Return a fresh public and secret key for one run."""
    return zmq.curve_keypair()


def remove_socket_folder(namespace: str) -> None:
    """Delete the run's folders on this node: its sockets and its shared memory."""
    remove_run_folders(namespace)


def _pack(frames: Sequence[Buffer]) -> tuple[list[Buffer], int]:
    """Lay out one message: the number of frames, their lengths, then each of them from an aligned offset.

    Returns:
        The parts of the message, and its size in bytes.
    """
    count = len(frames)
    lengths = [len(frame) if type(frame) is bytes else memoryview(frame).nbytes for frame in frames]
    layout = _LAYOUTS[count] if count < len(_LAYOUTS) else struct.Struct(f"<{count + 1}Q")
    parts: list[Buffer] = [layout.pack(count, *lengths)]
    total = _WORD_BYTES * (count + 1)
    for frame, length in zip(frames, lengths, strict=True):
        parts.append(frame)
        total += length
        excess = length % _WORD_BYTES
        if excess:
            parts.append(_PADDING[_WORD_BYTES - excess])
            total += _WORD_BYTES - excess
    return (parts if len(parts) <= _MAX_PARTS else [b"".join(parts)]), total


def _unpack(message: memoryview) -> list[memoryview]:
    """Return views of the frames in a message of ``_pack``."""
    (count,) = _LAYOUTS[0].unpack_from(message)
    layout = _LAYOUTS[count] if count < len(_LAYOUTS) else struct.Struct(f"<{count + 1}Q")
    frames, start = [], layout.size
    for size in layout.unpack_from(message)[1:]:
        frames.append(message[start : start + size])
        start += size + -size % _WORD_BYTES
    return frames


def _pad_greeting(greeting: bytes) -> bytes:
    """Return what precedes a message for another node: the greeting's length and the greeting, in whole words."""
    return _LAYOUTS[0].pack(len(greeting)) + greeting + _PADDING[-len(greeting) % _WORD_BYTES]


def _split(message: memoryview) -> tuple[bytes, memoryview]:
    """Return the greeting and the rest of a message from another node."""
    (length,) = _LAYOUTS[0].unpack_from(message)
    end = _WORD_BYTES + length
    return bytes(message[_WORD_BYTES:end]), message[end + -end % _WORD_BYTES :]
