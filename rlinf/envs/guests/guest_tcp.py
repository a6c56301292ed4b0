"""What both ends of a TCP connection do before anything else: prove that they have the same key.

Until the other end has proved it, a fixed number of bytes is read from it, and none of them is parsed. The proofs do
not contain the key, and each is of both ends' random numbers, so that one that was overheard is worth nothing later.
Nothing is encrypted, and what follows is not signed: where others share the network, the connection needs a tunnel.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

KEY_VARIABLE = "RLINF_GUEST_KEY"
"""Holds the key, where no file is named."""
PROOF_SECONDS = 10.0
"""How long the other end may take to prove that it has the key."""

_SHORTEST_KEY = 16
_GREETING = b"RLK1"
_NUMBER_BYTES = 32
_PROOF_BYTES = hashlib.sha256().digest_size
_IDLE_SECONDS, _PROBE_SECONDS, _PROBES = 15, 5, 3
"""After how many seconds without a word the kernel asks whether the other machine is there, how often and how long."""


class ProofError(Exception):
    """The other end did not prove that it has the key."""


def read_key(file: str | None) -> bytes:
    """Return the key.

    Args:
        file: Where it is; None takes it from ``RLINF_GUEST_KEY``.

    Raises:
        ValueError: There is none, it is too short, or others can read its file.
    """
    if file is None:
        key = os.environ.get(KEY_VARIABLE, "").strip().encode()
        place = KEY_VARIABLE
    else:
        try:
            if Path(file).expanduser().stat().st_mode & 0o077:
                raise ValueError(f"others can read '{file}'; run chmod 600 on it")
            key = Path(file).expanduser().read_bytes().strip()
        except OSError as error:
            raise ValueError(f"the key cannot be read: {error}") from error
        place = f"'{file}'"
    if len(key) < _SHORTEST_KEY:
        raise ValueError(
            f"{place} has a key of {len(key)} bytes; at least {_SHORTEST_KEY} are needed. Make one: openssl rand -hex "
            "32 > guest.key && chmod 600 guest.key"
        )
    return key


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of ``tcp://host:port``, or of ``host:port``.

    Raises:
        ValueError: It is neither.
    """
    parts = urlsplit(text if "://" in text else f"tcp://{text}")
    rest = parts.path or parts.query or parts.fragment or parts.username
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme != "tcp" or not parts.hostname or port is None or rest:
        raise ValueError(f"received '{text}'; give tcp://host:port, for example tcp://10.0.0.7:5555")
    return parts.hostname, port


def notice_silence(connection: socket.socket) -> None:
    """Have the kernel close a connection whose other machine is gone, and send small messages at once."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)


def prove_as_guest(connection: socket.socket, key: bytes) -> None:
    """Have the host prove that it has the key, then prove it to the host.

    Raises:
        ProofError: It has another one, or none.
        OSError: The connection broke.
    """
    deadline = time.monotonic() + PROOF_SECONDS
    ours = os.urandom(_NUMBER_BYTES)
    connection.settimeout(PROOF_SECONDS)
    connection.sendall(_GREETING + ours)
    answer = _receive(connection, _NUMBER_BYTES + _PROOF_BYTES, deadline)
    theirs, proof = answer[:_NUMBER_BYTES], answer[_NUMBER_BYTES:]
    if not hmac.compare_digest(proof, _proof(key, b"host", ours, theirs)):
        raise ProofError("it has another key")
    connection.sendall(_proof(key, b"guest", ours, theirs))
    connection.settimeout(None)


def prove_as_host(connection: socket.socket, key: bytes) -> None:
    """Prove to the guest that this end has the key, and have the guest prove it.

    Raises:
        ProofError: It has another one, or is no guest.
        OSError: The connection broke.
    """
    deadline = time.monotonic() + PROOF_SECONDS
    connection.settimeout(PROOF_SECONDS)
    greeting = _receive(connection, len(_GREETING) + _NUMBER_BYTES, deadline)
    if not greeting.startswith(_GREETING):
        raise ProofError("it is no guest that listens")
    theirs, ours = greeting[len(_GREETING) :], os.urandom(_NUMBER_BYTES)
    connection.sendall(ours + _proof(key, b"host", theirs, ours))
    proof = _receive(connection, _PROOF_BYTES, deadline)
    if not hmac.compare_digest(proof, _proof(key, b"guest", theirs, ours)):
        raise ProofError("it has another key")
    connection.settimeout(None)


def _proof(key: bytes, who: bytes, of_guest: bytes, of_host: bytes) -> bytes:
    return hmac.new(key, who + b"\0" + of_guest + of_host, hashlib.sha256).digest()


def _receive(connection: socket.socket, size: int, deadline: float) -> bytes:
    """Return this number of bytes, no more and no less."""
    found = b""
    while len(found) < size:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            part = connection.recv(size - len(found))
        except socket.timeout as error:  # noqa: UP041 - another class before Python 3.10
            raise ProofError(f"it proved nothing within {PROOF_SECONDS:.0f} s") from error
        if not part:
            raise ProofError("it closed the connection, as one does that has another key")
        found += part
    return found
