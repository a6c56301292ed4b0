"""Guests on other machines, which were started there by hand, and the choice between them and guests of this one."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from multiprocessing.connection import Connection

from rlinf.envs.guest_process import GuestProcess, GuestSetup, made_by_guest
from rlinf.envs.guests.guest_tcp import PROOF_SECONDS, ProofError, notice_silence, prove_as_host
from rlinf.envs.single_env import SingleEnvSpec
from rlinf.errors import EnvironmentFailure

_UNANSWERED_MILLISECONDS = 60_000
"""After which a request that the other machine's kernel does not confirm ends the connection."""


class RemoteGuest(GuestProcess):
    """A guest on another machine: the end of the connection is its end.

    Args:
        spec: As of ``GuestProcess``.
        first_row: As of ``GuestProcess``.
        setup: As of ``GuestProcess``, with an address and a key.

    Raises:
        EnvironmentFailure: Nothing listens there, it has another key, or does not speak this protocol.
    """

    def start(self) -> Connection:
        """Connect to the machine; nothing that it says is parsed before it has proved that it has the key."""
        assert self.setup.address is not None
        try:
            connection = socket.create_connection(self.setup.address, timeout=PROOF_SECONDS)
        except OSError as error:
            raise EnvironmentFailure(
                f"env.*.guest.address: no connection to {self._place()} ({error}). Start guests there: <python> "
                f"<rlinf/envs/guests> {self.setup.adapter} --listen <host>:{self.setup.address[1]} --key-file <file>"
            ) from error
        with contextlib.ExitStack() as undo:
            undo.enter_context(connection)
            try:
                prove_as_host(connection, self.setup.key)
            except (ProofError, OSError) as error:
                raise EnvironmentFailure(
                    f"env.*.guest.key_file: {self._place()} was refused, or refused this host: {error}. Both have to "
                    "have the same key."
                ) from error
            notice_silence(connection)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNANSWERED_MILLISECONDS)
            undo.pop_all()
        return Connection(connection.detach())

    def terminate(self) -> None:
        """Do nothing: a guest ends with its connection, which is closed before."""

    def join(self, deadline: float) -> None:
        """Do nothing: its own machine waits for it."""

    def freeze(self) -> None:
        """Do nothing: there is no signal to another machine."""

    def kill(self) -> None:
        """Cut the connection."""
        with socket.socket(fileno=os.dup(self.connection.fileno())) as connection:
            connection.shutdown(socket.SHUT_RDWR)

    def death(self) -> EnvironmentFailure:
        """See ``PoolProcess``."""
        return EnvironmentFailure(
            f"The connection to {self} has ended: the guest did, or its machine cannot be reached. Its last words are "
            "on the standard error of the program that listens there."
        )

    def __str__(self) -> str:
        return f"guest at {self._place()} {self.contents()}, adapter {self.setup.adapter}"

    def _place(self) -> str:
        assert self.setup.address is not None
        host, port = self.setup.address
        return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def start_guest(spec: SingleEnvSpec, first_row: int, *, setup: GuestSetup) -> GuestProcess:
    """Start a guest here, or connect to one on another machine.

    Args:
        spec: As of ``GuestProcess``.
        first_row: As of ``GuestProcess``.
        setup: As of ``GuestProcess``.

    Raises:
        EnvironmentFailure: As of ``GuestProcess`` and ``RemoteGuest``.
    """
    kind = GuestProcess if setup.address is None else RemoteGuest
    return kind(spec, first_row, setup=setup)


def installed_versions(setup: GuestSetup, env_type: str) -> dict[str, str]:
    """Return the versions of a guest's Python, numpy and the packages that its adapter names; empty where missing.

    Args:
        setup: How to start it; no environment is built.
        env_type: For messages.

    Raises:
        EnvironmentFailure: It did not start.
    """
    guest = start_guest(SingleEnvSpec(env_type=env_type, factory=made_by_guest), 0, setup=setup)
    guest.farewell()
    guest.connection.close()
    guest.join(time.monotonic() + 5.0)
    return guest.versions
