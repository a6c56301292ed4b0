"""Messages between processes of one node, over Unix sockets that keep the bounds of records.

A message leaves on its sender's thread and, where the receiving thread already waits for it, is read by that very
thread: no other thread runs in between. While no thread waits, the endpoint's own thread reads. Records are sent whole
or not at all, so an interrupted send can lose a message but never corrupt the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import math
import os
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

from rlinf.scheduler.comm.futures import wait_any
from rlinf.utils.logging import get_logger

# Keeps Python's lock: none of what it calls takes time.
_libc = ctypes.PyDLL(None, use_errno=True)

# Called with what the peer said when it connected, and with the message.
RecordHandler = Callable[[Any, memoryview], None]

# Bytes of one record; the kernel's default send buffer holds a few of them.
_RECORD_BYTES = 1 << 16
_PREFIX = struct.Struct("<Q")
# In place of a message's length: the record continues the message before it.
_CONTINUED = (1 << 64) - 1
_CONTINUED_PREFIX = _PREFIX.pack(_CONTINUED)
# Events handled before other work of the endpoint's thread gets a turn.
_BATCH = 256
_BACKLOG = 1024
# A thread that waits often should find its messages unread: waking the endpoint's thread for them costs more than all
# the rest of a small message.
_GRACE_SECONDS = 0.001
# What passes: full queues, and a process or machine that is out of descriptors or memory.
_PASSING = frozenset({errno.EAGAIN, errno.EINTR, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
# Between two attempts at what nothing wakes a process for.
_RETRY_SECONDS = 0.05
# A connection that takes so long is worth a line.
_CONNECT_SECONDS = 10.0
# The news of a death takes seconds on a busy machine; who cannot be reached and is not dead by then is an error.
_NEWS_SECONDS = 30.0
_CREDENTIALS = struct.Struct("3i")


class LocalSockets:
    """One process's connections within its node.

    Args:
        path: Where it listens; the folder admits only this user.
        loop: The event loop of the endpoint's thread.
        greeting: First bytes of each connection.
        on_greeting: Turns a peer's greeting into what ``on_message`` gets.
        on_message: Called with each message, by one thread at a time.
        on_lost: Called on the loop's thread with the name of a peer that cannot be reached although it is not known to
            be gone, where it listens, and why.
    """

    def __init__(
        self,
        path: Path,
        loop: asyncio.AbstractEventLoop,
        *,
        greeting: bytes,
        on_greeting: Callable[[bytes], Any],
        on_message: RecordHandler,
        on_lost: Callable[[str, str, OSError], None],
    ) -> None:
        self._loop = loop
        self._greeting = greeting
        self._on_greeting = on_greeting
        self._on_message = on_message
        self._on_lost = on_lost
        self._peers: dict[str, _Outgoing] = {}
        self._peers_lock = threading.Lock()
        self._closed = False
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        self._listener.bind(str(path))
        self._listener.listen(_BACKLOG)
        self._scratch = memoryview(bytearray(_RECORD_BYTES))
        self._incoming: dict[int, _Incoming] = {}
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._events = select.epoll()
        self._events.register(self._listener.fileno(), select.EPOLLIN)
        self._events.register(self._wakeup, select.EPOLLIN)
        # Between the endpoint's loop and the events: shut while another thread reads, and for a moment after.
        self._gate = select.epoll()
        self._gate.register(self._events.fileno(), select.EPOLLIN)
        self._gate_is_shut = False
        self._reopening = _Timer()
        self._reading = threading.Lock()
        self._reader: int | None = None

    def start(self) -> None:
        """Read on the loop's thread from now on; call it there."""
        self._loop.add_reader(self._gate.fileno(), self._read_on_loop)
        self._loop.add_reader(self._reopening.descriptor, self._reopen)

    def send(self, uid: str, address: str, parts: Sequence[bytes | bytearray | memoryview], num_bytes: int) -> None:
        """Send a message of ``num_bytes`` to the process ``uid``, which listens at ``address``; dropped if it is gone.

        Raises:
            OSError: The sockets are closed, or the peer cannot be reached although it is not known to be gone.
        """
        peer = self._peers.get(uid)
        if peer is None:
            with self._peers_lock:
                if self._closed:
                    raise OSError("The sockets are closed.")
                peer = self._peers.get(uid)
                if peer is None:
                    on_lost = partial(self._on_lost, uid, address)
                    peer = self._peers[uid] = _Outgoing(address, self._loop, self._greeting, on_lost)
        peer.send(parts, num_bytes)

    def forget(self, uid: str) -> None:
        """Close the connection to a dead peer and drop what was queued for it."""
        with self._peers_lock:
            peer = self._peers.pop(uid, None)
        if peer is not None:
            peer.close()

    def wait(self, future: Future[Any], timeout: float | None) -> None:
        """Wait until ``future`` is done or ``timeout`` seconds have passed; this thread reads if no other does."""
        if not self._reading.acquire(blocking=False):
            wait_any([future], timeout)
            return
        try:
            self._reader = threading.get_ident()
            self._reopening.set(0.0)
            future.add_done_callback(self._wake)
            if not self._gate_is_shut:
                self._gate_is_shut = True
                self._gate.modify(self._events.fileno(), 0)
            deadline = None if timeout is None else time.monotonic() + timeout
            while not future.done() and not self._closed:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    break
                self._read(left)
        finally:
            self._reader = None
            self._reopening.set(_GRACE_SECONDS)
            self._reading.release()
        if not future.done() and self._closed:
            wait_any([future], timeout)

    def on_reading_thread(self) -> bool:
        """Whether this thread reads at the moment: it must not wait for a message."""
        return self._reader == threading.get_ident()

    def linger(self, seconds: float) -> None:
        """Give queued messages some time to leave; call it before the loop stops."""
        deadline = time.monotonic() + seconds
        while any(peer.backlog for peer in list(self._peers.values())) and time.monotonic() < deadline:
            time.sleep(0.01)

    def close(self) -> None:
        """Close all connections; the loop must have ended."""
        with self._peers_lock:
            self._closed = True
            peers = list(self._peers.values())
            self._peers.clear()
        os.eventfd_write(self._wakeup, 1)
        for peer in peers:
            peer.close()
        with self._reading:
            for incoming in self._incoming.values():
                incoming.socket.close()
            self._listener.close()
            self._gate.close()
            self._reopening.close()
            self._events.close()
            os.close(self._wakeup)

    def _wake(self, _: Future[Any]) -> None:
        if self._reader not in {None, threading.get_ident()} and not self._closed:
            with contextlib.suppress(OSError):  # just closed
                os.eventfd_write(self._wakeup, 1)

    def _reopen(self) -> None:
        """Let the endpoint's thread read again, unless another does so: that one sets the timer when it ends."""
        self._reopening.clear()
        if self._closed:
            return
        if not self._reading.acquire(blocking=False):
            if self._reader is None:  # the other has set the timer already, or is about to stop it
                self._reopening.set(_GRACE_SECONDS)
            return
        try:
            if self._gate_is_shut:
                self._gate_is_shut = False
                self._gate.modify(self._events.fileno(), select.EPOLLIN)
        finally:
            self._reading.release()

    def _read_on_loop(self) -> None:
        if not self._reading.acquire(blocking=False):
            return
        try:
            self._reader = threading.get_ident()
            for _ in range(_BATCH):
                if not self._read(0.0):
                    return
        finally:
            self._reader = None
            self._reading.release()

    def _read(self, timeout: float | None) -> bool:
        """Handle one record of each connection that has some; False when none has."""
        events = self._events.poll(timeout)
        for descriptor, _ in events:
            incoming = self._incoming.get(descriptor)
            if incoming is not None:
                self._read_record(incoming)
            elif descriptor == self._wakeup:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._wakeup)
            else:
                self._accept()
        return bool(events)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            if error.errno in _PASSING and not isinstance(error, BlockingIOError):
                # The connection stays in the queue, which would wake this thread again at once.
                self._events.modify(self._listener.fileno(), 0)
                self._loop.call_soon_threadsafe(self._loop.call_later, _RETRY_SECONDS, self._accept_again)
            return
        connection.setblocking(False)
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        if _CREDENTIALS.unpack(credentials)[1] != os.getuid():
            get_logger(__name__).warning("Refused a connection of another user.")
            connection.close()
            return
        self._incoming[connection.fileno()] = _Incoming(connection)
        self._events.register(connection.fileno(), select.EPOLLIN)

    def _accept_again(self) -> None:
        if not self._closed:
            self._events.modify(self._listener.fileno(), select.EPOLLIN)

    def _read_record(self, incoming: _Incoming) -> None:
        try:
            size = incoming.socket.recv_into(self._scratch)
        except BlockingIOError:
            return
        except OSError:
            size = 0
        if not size:
            descriptor = incoming.socket.fileno()
            self._events.unregister(descriptor)
            del self._incoming[descriptor]
            incoming.socket.close()
            return
        message = incoming.accept(self._scratch[:size])
        if message is None:
            return
        if incoming.peer is None:
            incoming.peer = self._on_greeting(bytes(message))
        else:
            self._on_message(incoming.peer, message)


class _Timer:
    """A timer whose descriptor is readable when its time has come; to set it wakes no thread, unlike the loop's own."""

    def __init__(self) -> None:
        self.descriptor = _libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self.descriptor < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")

    def set(self, seconds: float) -> None:
        """Start it anew, or stop it with 0."""
        whole = int(seconds)
        # The interval of a repeated timer, and the time until the first: seconds and nanoseconds.
        _libc.timerfd_settime(self.descriptor, 0, (ctypes.c_long * 4)(0, 0, whole, int((seconds - whole) * 1e9)), None)

    def clear(self) -> None:
        """Note that its time has come."""
        with contextlib.suppress(BlockingIOError):  # set anew meanwhile
            os.read(self.descriptor, 8)

    def close(self) -> None:
        """Free it; to set it has no effect any more."""
        descriptor, self.descriptor = self.descriptor, -1
        os.close(descriptor)


class _Incoming:
    """A connection of a peer, and the message whose records are arriving."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.peer: Any = None
        self._message: memoryview | None = None
        self._filled = 0

    def accept(self, record: memoryview) -> memoryview | None:
        """Return the message that ``record`` completes, in memory of its own."""
        (num_bytes,) = _PREFIX.unpack_from(record)
        body = record[_PREFIX.size :]
        if num_bytes == len(body):
            self._message = None
            return memoryview(bytearray(body))
        if num_bytes != _CONTINUED:  # an unfinished message before it was given up by its sender
            self._message, self._filled = memoryview(bytearray(num_bytes)), 0
        if self._message is None:
            return None
        self._message[self._filled : self._filled + len(body)] = body
        self._filled += len(body)
        if self._filled < len(self._message):
            return None
        message, self._message = self._message, None
        return message


class _Outgoing:
    """A connection to a peer; what the kernel does not take at once waits in ``backlog``.

    Neither connecting nor sending blocks: the loop tries again while the peer's buffer or its queue of connections is
    full, or this process is out of descriptors or memory.

    Args:
        address: Where the peer listens.
        loop: The event loop of the endpoint's thread.
        greeting: The first record.
        on_lost: Called on the loop's thread when the peer cannot be reached and has not been closed since.
    """

    def __init__(
        self, address: str, loop: asyncio.AbstractEventLoop, greeting: bytes, on_lost: Callable[[OSError], None]
    ) -> None:
        self.backlog: deque[bytes] = deque([_PREFIX.pack(len(greeting)) + greeting])
        self._address = address
        self._loop = loop
        self._on_lost = on_lost
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._is_watched = self._is_closed = self._is_reported = False
        self._failure: OSError | None = None
        self._waiting_since: float | None = None
        with self._lock:
            if self._try_backlog() is not None:
                self._loop.call_soon_threadsafe(self._flush)

    def send(self, parts: Sequence[bytes | bytearray | memoryview], num_bytes: int) -> None:
        """Send a message, in several records if it is large; drops it if the peer is gone.

        Raises:
            OSError: The peer cannot be reached, and it has not been closed although there was time to hear of its end.
        """
        with self._lock:
            if self._is_reported and self._failure is not None:
                raise OSError(self._failure.errno, self._failure.strerror)
            if num_bytes <= _RECORD_BYTES - _PREFIX.size:
                self._send_record([_PREFIX.pack(num_bytes), *parts])
                return
            prefix = _PREFIX.pack(num_bytes)
            body = memoryview(b"".join(parts))
            step = _RECORD_BYTES - _PREFIX.size
            for start in range(0, num_bytes, step):
                self._send_record([prefix, body[start : start + step]])
                prefix = _CONTINUED_PREFIX

    def close(self) -> None:
        """Close the connection: the peer is gone, or this process is about to be."""
        with self._lock:
            self._is_closed, self._is_reported = True, False
            self._drop()

    def _send_record(self, parts: Sequence[bytes | bytearray | memoryview]) -> None:
        if self._is_closed or self._failure is not None:
            return
        if not self.backlog and self._socket is not None:
            try:
                self._socket.sendmsg(parts)
            except OSError as error:
                if error.errno not in _PASSING:
                    self._lose(error)
                    return
                self._loop.call_soon_threadsafe(self._flush)
            else:
                return
        self.backlog.append(b"".join(parts))

    def _try_backlog(self) -> OSError | None:
        """Connect if need be and send what waits; return why some of it has to wait longer."""
        try:
            if self._socket is None:
                self._socket = _connect(self._address)
            while self.backlog:
                self._socket.send(self.backlog[0])
                self.backlog.popleft()
        except OSError as error:
            if error.errno in _PASSING:
                return error
            self._lose(error)
        return None

    def _flush(self) -> None:
        """Send what waits, on the loop's thread; arrange for the next attempt if some is left."""
        with self._lock:
            if self._is_closed or self._failure is not None:
                return
            error = self._try_backlog()
            is_full = self._socket is not None and isinstance(error, BlockingIOError)
            if self._socket is not None and is_full != self._is_watched:
                self._is_watched = is_full
                if is_full:
                    self._loop.add_writer(self._socket.fileno(), self._flush)
                else:
                    self._loop.remove_writer(self._socket.fileno())
            if error is not None and not is_full:
                self._loop.call_later(_RETRY_SECONDS, self._flush)
            self._note_wait(None if is_full else error)

    def _note_wait(self, error: OSError | None) -> None:
        """Say once what messages wait for when a connection takes long."""
        now = time.monotonic()
        if error is None:
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = now
        elif now - self._waiting_since > _CONNECT_SECONDS:
            self._waiting_since = math.inf
            get_logger(__name__).warning("Messages wait for a connection to %s: %s.", self._address, error)

    def _lose(self, error: OSError) -> None:
        """Give up the connection: the manager reports deaths, but the socket may have been removed."""
        get_logger(__name__).debug("A peer cannot be reached: %s", error)
        self._failure = error
        self._drop()
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._loop.call_later, _NEWS_SECONDS, self._report)

    def _report(self) -> None:
        with self._lock:
            if self._is_closed or self._failure is None:
                return
            self._is_reported = True
        self._on_lost(self._failure)

    def _drop(self) -> None:
        self.backlog.clear()
        if self._is_watched and self._loop.is_running():
            # The loop still watches it; a descriptor must not be reused before that ends.
            self._loop.call_soon_threadsafe(self._shut)
        else:
            self._shut()

    def _shut(self) -> None:
        if self._socket is None:
            return
        if self._is_watched:
            self._is_watched = False
            self._loop.remove_writer(self._socket.fileno())
        self._socket.close()


def _connect(address: str) -> socket.socket:
    """Connect without waiting: a full queue of connections raises ``BlockingIOError``."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    try:
        connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection
