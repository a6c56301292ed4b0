"""Waits for hosts on other machines: each that has the key gets a guest, a process of its own.

``<python> <this folder> <adapter> --listen <host>:<port> [--key-file <file>]``
"""

from __future__ import annotations

import argparse
import os
import select
import socket
import subprocess
import sys
import threading
from pathlib import Path

from .guest_tcp import ProofError, notice_silence, parse_address, prove_as_guest, read_key

_PENDING = 16
"""Connections at a time that have not proved anything."""
_POLL_MILLISECONDS = 200
_CLOSE_SECONDS = 5.0
"""How long a guest may take to close its simulator, when its host has gone."""


def main(arguments: list[str]) -> None:
    """Read the command line, and listen until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("adapter", help="the module that drives the simulator")
    parser.add_argument("--listen", required=True, metavar="HOST:PORT", help="where hosts connect to")
    parser.add_argument("--key-file", help="file with the key; without it, RLINF_GUEST_KEY has the key")
    given = parser.parse_args(arguments)
    try:
        address, key = parse_address(given.listen), read_key(given.key_file)
    except ValueError as error:
        parser.error(str(error))
    try:
        listen(given.adapter, address, key)
    except KeyboardInterrupt:
        sys.exit(130)


def listen(adapter: str, address: tuple[str, int], key: bytes) -> None:
    """Give every host that has the key a guest.

    Args:
        adapter: The adapter's name.
        address: Host and port; port 0 is any that is free.
        key: What this machine and the hosts share.
    """
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    pending = threading.BoundedSemaphore(_PENDING)
    with socket.create_server(address, family=family) as server:
        _say(f"Guests with adapter {adapter} listen on port {server.getsockname()[1]} of {address[0]}.")
        while True:
            pending.acquire()
            connection, peer = server.accept()
            threading.Thread(target=_welcome, args=(connection, peer[0], adapter, key, pending), daemon=True).start()


def _welcome(
    connection: socket.socket, peer: str, adapter: str, key: bytes, pending: threading.BoundedSemaphore
) -> None:
    with connection:
        try:
            prove_as_guest(connection, key)
        except (ProofError, OSError) as error:
            _say(f"A host at {peer} was refused: {error}.")
            return
        finally:
            pending.release()
        notice_silence(connection)
        _serve(connection, adapter)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _serve(connection: socket.socket, adapter: str) -> None:
    """Run a guest until it ends, or its host has gone."""
    # Never written to: when it closes, with this process at the latest, the kernel ends the guest.
    read_end, lifeline = os.pipe()
    descriptors = (connection.fileno(), read_end)
    command = [sys.executable, str(Path(__file__).parent), adapter, *map(str, descriptors)]
    try:
        guest = subprocess.Popen(command, pass_fds=descriptors)
        os.close(read_end)
        gone = select.poll()
        gone.register(connection, select.POLLRDHUP)
        while guest.poll() is None and not gone.poll(_POLL_MILLISECONDS):
            pass
        guest.wait(_CLOSE_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    finally:
        os.close(lifeline)
    guest.wait()
