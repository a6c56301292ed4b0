"""Frames between processes over ZeroMQ; the one file that knows how bytes travel.

Each process binds one socket on ``ipc://`` inside a folder only its user may enter and, in a run over several nodes,
one on ``tcp://`` that admits only holders of the run's key. One thread runs an asyncio loop that is woken by the
sockets; there is no polling and no thread per peer. Sending happens on the caller's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import struct
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import zmq
from zmq.utils import z85

from rlinf.errors import ClusterError
from rlinf.scheduler.address import EndpointInfo
from rlinf.scheduler.comm.serialization import Buffer
from rlinf.utils.logging import get_logger

MessageHandler = Callable[[list[memoryview]], None]

# Unit of a message's layout, so that its buffers stay aligned for every element type.
_WORD_BYTES = 8
# Below this a second copy costs less than ZeroMQ's book-keeping for memory that is not its own.
_COPY_BELOW_BYTES = 65536
# Messages taken from a socket before other work of the loop gets a turn.
_BATCH = 256
# A folder younger than this may belong to a process that has not locked it yet.
_SWEEP_AGE_SECONDS = 60.0


class Transport:
    """Sends frames to peers and hands received ones to ``on_message`` on its own thread.

    Args:
        namespace: Name of the run; processes of one run on one node share a socket folder.
        node_id: Ray's id of this node.
        keys: Public and secret key of the run.
        listen_ip: Address of the interface for other nodes, or None to stay on this node.
        on_message: Called on the transport's thread with the frames of each message.
    """

    def __init__(
        self,
        *,
        namespace: str,
        node_id: str,
        keys: tuple[bytes, bytes],
        listen_ip: str | None,
        on_message: MessageHandler,
    ) -> None:
        self._keys = keys
        self._on_message = on_message
        self._context = zmq.Context(io_threads=1)
        self._peers: dict[str, tuple[threading.Lock, zmq.Socket[bytes]]] = {}
        self._peers_lock = threading.Lock()
        self._closed = False
        self._folder, self._folder_lock = _open_socket_folder(namespace)
        uid = uuid.uuid4().hex[:16]
        self._path = self._folder / uid
        self._sockets: list[zmq.Socket[bytes]] = [self._bind(f"ipc://{self._path}", encrypted=False)]
        tcp = None
        if listen_ip is not None:
            self._zap = self._bind_gatekeeper()
            host = f"[{listen_ip}]" if ":" in listen_ip else listen_ip
            self._sockets.append(self._bind(f"tcp://{host}:*", encrypted=True))
            tcp = self._sockets[-1].getsockopt_string(zmq.LAST_ENDPOINT)
        self.info = EndpointInfo(uid=uid, node_id=node_id, ipc=f"ipc://{self._path}", tcp=tcp)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="rlinf-io", daemon=True)
        self._thread.start()

    def send(self, peer: EndpointInfo, frames: Sequence[Buffer]) -> None:
        """Queue a message for ``peer``; when this returns the buffers may change. Keeps order per peer and thread.

        Raises:
            ClusterError: The transport is closed, or the peer cannot be reached from this node.
        """
        lock, socket = self._peer(peer)
        with lock:
            try:
                # One frame and one call: a signal's exception between the parts of a multi-part message would leave it
                # unfinished, and what is sent next would become its end.
                packed = _pack(frames)
                socket.send(packed, 0, copy=len(packed) < _COPY_BELOW_BYTES)
            except zmq.ZMQError as error:
                raise ClusterError(f"Cannot send to endpoint {peer.uid}: {error}.") from error

    def forget(self, uid: str) -> None:
        """Close the connection to a dead peer and drop what was queued for it."""
        with self._peers_lock:
            entry = self._peers.pop(uid, None)
        if entry is not None:
            with entry[0]:
                entry[1].close(linger=0)

    def on_own_thread(self) -> bool:
        """Whether the caller runs on the transport's thread, where waiting for a message would never end."""
        return threading.current_thread() is self._thread

    def close(self, linger_seconds: float = 0.5) -> None:
        """Stop the thread and close all sockets; queued messages get ``linger_seconds`` to leave."""
        with self._peers_lock:
            if self._closed:
                return
            self._closed = True
            peers = list(self._peers.values())
            self._peers.clear()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout=5)
        for lock, socket in peers:
            with lock:
                socket.close(linger=int(linger_seconds * 1000))
        self._context.term()
        self._path.unlink(missing_ok=True)
        self._folder_lock.close()

    def _peer(self, peer: EndpointInfo) -> tuple[threading.Lock, zmq.Socket[bytes]]:
        with self._peers_lock:
            if self._closed:
                raise ClusterError("This process has left the run; its cluster is closed.")
            if peer.uid not in self._peers:
                self._peers[peer.uid] = (threading.Lock(), self._connect(peer))
            return self._peers[peer.uid]

    def _connect(self, peer: EndpointInfo) -> zmq.Socket[bytes]:
        local = peer.node_id == self.info.node_id
        target = peer.ipc if local else peer.tcp
        if target is None:
            raise ClusterError(f"Endpoint {peer.uid} on another node does not listen on the network.")
        socket = self._context.socket(zmq.PUSH)
        socket.set_hwm(0)
        socket.linger = 0
        if not local:
            socket.curve_publickey, socket.curve_secretkey = self._keys
            socket.curve_serverkey = self._keys[0]
        socket.connect(target)
        return socket

    def _bind(self, target: str, *, encrypted: bool) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.PULL)
        socket.set_hwm(0)
        socket.linger = 0
        if encrypted:
            socket.curve_server = True
            socket.curve_publickey, socket.curve_secretkey = self._keys
            socket.zap_domain = b"rlinf"
        socket.bind(target)
        return socket

    def _bind_gatekeeper(self) -> zmq.Socket[bytes]:
        """Bind ZeroMQ's authentication hook: it is asked about every connection to an encrypted socket."""
        socket = self._context.socket(zmq.REP)
        socket.linger = 0
        socket.bind("inproc://zeromq.zap.01")
        return socket

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        for socket in self._sockets:
            self.loop.add_reader(socket.fileno(), self._drain, socket)
            self.loop.call_soon(self._drain, socket)
        if self.info.tcp is not None:
            self.loop.add_reader(self._zap.fileno(), self._admit)
            self.loop.call_soon(self._admit)
        try:
            self.loop.run_forever()
        finally:
            for socket in self._sockets:
                socket.close(linger=0)
            if self.info.tcp is not None:
                self._zap.close(linger=0)

    def _drain(self, socket: zmq.Socket[bytes]) -> None:
        for _ in range(_BATCH):
            try:
                message = socket.recv(flags=zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            self._on_message(_unpack(message.buffer))
        # The socket's descriptor signals changes, not levels: what is left must be asked for.
        self.loop.call_soon(self._drain, socket)

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
    """Delete the run's socket folder on this node."""
    shutil.rmtree(_socket_folder(namespace), ignore_errors=True)


def _pack(frames: Sequence[Buffer]) -> bytes:
    """Copy frames into one message: their number, their lengths, then each of them from an aligned offset."""
    views = [memoryview(frame).cast("B") for frame in frames]
    sizes = struct.pack(f"<{len(views) + 1}Q", len(views), *(view.nbytes for view in views))
    parts: list[Buffer] = [sizes]
    for view in views:
        parts.append(view)
        parts.append(bytes(-view.nbytes % _WORD_BYTES))
    return b"".join(parts)


def _unpack(message: memoryview) -> list[memoryview]:
    """Return views of the frames in a message of ``_pack``."""
    message = message.cast("B")
    (count,) = struct.unpack_from("<Q", message)
    sizes = struct.unpack_from(f"<{count}Q", message, _WORD_BYTES)
    frames, start = [], _WORD_BYTES * (count + 1)
    for size in sizes:
        frames.append(message[start : start + size])
        start += size + -size % _WORD_BYTES
    return frames


def _socket_folder(namespace: str) -> Path:
    # A Unix socket's path may have about 100 characters: the folder must be short.
    return Path(tempfile.gettempdir()) / f"rlinf_{os.getuid()}_{namespace}"


def _open_socket_folder(namespace: str) -> tuple[Path, _LockFile]:
    _sweep_socket_folders()
    folder = _socket_folder(namespace)
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077 or folder.is_symlink():
        raise ClusterError(f"{folder} must be a folder that only this user may enter; remove it and start again.")
    return folder, _LockFile(folder / "lock")


def _sweep_socket_folders() -> None:
    """Remove folders of runs that ended without cleaning up: nobody holds their lock."""
    for folder in Path(tempfile.gettempdir()).glob(f"rlinf_{os.getuid()}_*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > _SWEEP_AGE_SECONDS:
                probe = _LockFile(folder / "lock", exclusive=True)
                shutil.rmtree(folder, ignore_errors=True)
                probe.close()


class _LockFile:
    """An advisory lock that the kernel drops when the process dies."""

    def __init__(self, path: Path, *, exclusive: bool = False) -> None:
        self._descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        mode = fcntl.LOCK_EX | fcntl.LOCK_NB if exclusive else fcntl.LOCK_SH
        try:
            fcntl.flock(self._descriptor, mode)
        except OSError:
            os.close(self._descriptor)
            raise

    def close(self) -> None:
        os.close(self._descriptor)
