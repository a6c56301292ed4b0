"""Notices a node that vanishes without closing its connections: power, cable, kernel.

Ray takes more than a minute for that. Here ZeroMQ's own heartbeat does it: its C++ threads answer on the other side, so
that a process which computes for minutes without releasing Python's lock does not seem dead.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import zmq
from zmq.utils.monitor import recv_monitor_message

from rlinf.scheduler.address import EndpointInfo

# A node is given up 15 s after its last sign of life: 12 s until ZeroMQ ends the connection, 3 s to make it again.
_INTERVAL_SECONDS = 3.0
_TIMEOUT_SECONDS = 9.0
_GRACE_SECONDS = 3.0
SILENCE_SECONDS = _INTERVAL_SECONDS + _TIMEOUT_SECONDS + _GRACE_SECONDS
# One process would do; more tell the death of a process from that of its node.
_LINKS_PER_NODE = 3
_EVENTS = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED


@dataclass
class _Link:
    """A connection that carries nothing but heartbeats."""

    socket: zmq.Socket[bytes]
    monitor: zmq.Socket[bytes]
    is_up: bool = False


class Heartbeat:
    """Keeps a few connections to each other node; all methods must be called on the loop's thread.

    Args:
        loop: Wakes up when a connection comes or goes.
        node_id: This node, which is not watched.
        keys: Public and secret key of the run.
        on_silence: Called with the id of a node none of whose watched processes can be reached any more.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        node_id: str,
        keys: tuple[bytes, bytes],
        on_silence: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._node_id = node_id
        self._keys = keys
        self._on_silence = on_silence
        self._context = zmq.Context(io_threads=1)
        self._processes: dict[str, dict[str, EndpointInfo]] = defaultdict(dict)
        self._links: dict[str, dict[str, _Link]] = defaultdict(dict)

    def watch(self, process: EndpointInfo) -> None:
        """Watch the node of a process that has joined the run."""
        if process.tcp is not None and process.node_id != self._node_id:
            self._processes[process.node_id][process.uid] = process
            self._connect(process.node_id)

    def forget(self, uid: str) -> None:
        """Stop watching a process that is gone."""
        for node_id, processes in self._processes.items():
            if processes.pop(uid, None) is not None:
                link = self._links[node_id].pop(uid, None)
                if link is not None:
                    self._close(link)
                self._connect(node_id)

    def close(self) -> None:
        """Close all connections."""
        for links in self._links.values():
            for link in links.values():
                self._close(link)
        self._links.clear()
        self._processes.clear()
        self._context.term()

    def _connect(self, node_id: str) -> None:
        links = self._links[node_id]
        for uid, process in self._processes[node_id].items():
            if len(links) >= _LINKS_PER_NODE:
                return
            if uid not in links:
                links[uid] = self._open(process)

    def _open(self, process: EndpointInfo) -> _Link:
        socket = self._context.socket(zmq.PUSH)
        socket.linger = 0
        socket.curve_publickey, socket.curve_secretkey = self._keys
        socket.curve_serverkey = self._keys[0]
        socket.heartbeat_ivl = int(_INTERVAL_SECONDS * 1000)
        socket.heartbeat_timeout = int(_TIMEOUT_SECONDS * 1000)
        link = _Link(socket, socket.get_monitor_socket(_EVENTS))
        self._loop.add_reader(link.monitor.fileno(), self._note, process.node_id, link)
        assert process.tcp is not None, "only processes that listen on the network are watched"
        socket.connect(process.tcp)
        self._loop.call_soon(self._note, process.node_id, link)
        return link

    def _note(self, node_id: str, link: _Link) -> None:
        # The descriptor signals changes, not levels: everything that is there must be taken.
        while not link.monitor.closed and link.monitor.poll(timeout=0):
            link.is_up = recv_monitor_message(link.monitor)["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED
            if not link.is_up:
                self._loop.call_later(_GRACE_SECONDS, self._check, node_id, link)

    def _check(self, node_id: str, link: _Link) -> None:
        """See whether a node is still out of reach some time after a connection to it was lost."""
        links = self._links[node_id].values()
        if any(entry is link for entry in links) and not any(entry.is_up for entry in links):
            self._on_silence(node_id)

    def _close(self, link: _Link) -> None:
        self._loop.remove_reader(link.monitor.fileno())
        link.socket.disable_monitor()
        link.monitor.close(linger=0)
        link.socket.close(linger=0)
