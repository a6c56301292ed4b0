"""The host's end of a guest: a process of the pool that runs another interpreter (``rlinf.envs.guests``).

Nothing that a guest sends is unpickled, so that the interpreters need no package in common but numpy.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import signal
import socket
import struct
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

import rlinf.envs.guests
from rlinf.envs.guest_replies import PendingRequest, read_hello, read_reply
from rlinf.envs.guests.guest_wire import HEARTBEAT_SECONDS, MAX_BYTES, PROTOCOL, WireError, encode
from rlinf.envs.process_pool import ONE_THREAD, PoolProcess
from rlinf.envs.raw_chunk import ChunkRequest
from rlinf.envs.single_env import SingleEnv, SingleEnvSpec, Spaces
from rlinf.errors import EnvironmentFailure

_STALL_SECONDS = 60
"""How long a message may stop in its midst."""
_SILENT_HEARTBEATS = 3
"""After this number that did not come, a process counts as one that hangs."""
_HIDDEN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONSAFEPATH")
"""Variables that would have the guest import packages of this interpreter."""


@dataclass(frozen=True, kw_only=True)
class GuestSetup:
    """How to start a guest.

    Attributes:
        python: Its interpreter.
        adapter: The module that drives its simulator (``rlinf.envs.guests.rows``).
        env_vars: Environment variables that it gets in addition.
        startup_timeout_seconds: How long its interpreter may take to say hello.
        address: Host and port where it was started by hand; None starts it here, and with one ``python`` and
            ``env_vars`` mean nothing.
        key: What its machine and this one share.
    """

    adapter: str
    python: str = ""
    env_vars: dict[str, str] = field(default_factory=dict)
    startup_timeout_seconds: float = 60.0
    address: tuple[str, int] | None = None
    key: bytes = field(default=b"", repr=False)


def made_by_guest(**kwargs: Any) -> SingleEnv:
    """Stand for the factory of a specification whose environments the guest makes; never called.

    Raises:
        EnvironmentFailure: Always.
    """
    raise EnvironmentFailure(f"environments with {sorted(kwargs)} are made by their guest")


class GuestProcess(PoolProcess):
    """A guest with environments of a pool.

    Args:
        spec: Its environments; ``kwargs`` are ``init_params`` and ``episode``, arguments of the adapter.
        first_row: The first of them among the pool's.
        setup: How to start it.

    Raises:
        EnvironmentFailure: It did not start, or does not speak this protocol.
    """

    def __init__(self, spec: SingleEnvSpec, first_row: int, *, setup: GuestSetup) -> None:
        self.setup = setup
        self._shared: memoryview | None = None
        self._request = PendingRequest("build")
        self._spaces: Spaces | None = None
        self._report: dict[str, Any] = {}
        self._requested_at = self._heard_at = time.monotonic()
        self.versions: dict[str, str] = {}
        """Of its Python, numpy and the packages that its adapter names."""
        try:
            super().__init__(spec, first_row)
        except OSError as error:
            raise EnvironmentFailure(f"The guest of env_type={spec.env_type} cannot be started: {error}") from error
        try:
            _limit_stalls(self.connection.fileno())
            self._greet()
        except BaseException:
            self.connection.close()
            self.terminate()
            self.join(time.monotonic() + 1.0)
            raise

    def start(self) -> Connection:
        """See ``PoolProcess``; it also gets a file in memory for arrays that are large."""
        self._shared_fd = _make_shared_file()
        try:
            self._shared = memoryview(mmap.mmap(self._shared_fd, 0, prot=mmap.PROT_READ))
            return super().start()
        finally:
            os.close(self._shared_fd)

    def command(self) -> list[str]:
        """See ``PoolProcess``."""
        return [self.setup.python, str(Path(rlinf.envs.guests.__path__[0])), self.setup.adapter]

    def inherited(self) -> list[int]:
        """See ``PoolProcess``."""
        return [self._shared_fd]

    def environment(self) -> dict[str, str]:
        """Return this process's variables, without those that name its packages, and the guest's own."""
        kept = {name: value for name, value in os.environ.items() if name not in _HIDDEN}
        return {**kept, **ONE_THREAD, **self.setup.env_vars}

    def encode(self, kind: str, *arguments: Any) -> bytes:
        """See ``PoolProcess``."""
        self._requested_at = self._heard_at = time.monotonic()
        self._report = {}
        if kind == "build":
            self._request = PendingRequest(kind)
            return encode([kind, self.build_request()])
        if kind == "reset":
            self._request = PendingRequest(kind, (len(arguments[0]),), self._spaces)
            return encode([kind, {"rows": arguments[0], "seeds": arguments[1]}])
        if kind == "versions":
            self._request = PendingRequest(kind)
            return encode([kind, {}])
        self._request = self.pending_request(arguments[0])
        return encode([kind, chunk_request(arguments[0])])

    def pending_request(self, request: ChunkRequest) -> PendingRequest:
        """Return what the answer to a chunk's request has to fit."""
        return PendingRequest("chunk", request.shape, self._spaces)

    def build_request(self) -> dict[str, Any]:
        """Return what the guest has to build."""
        counts = {name: getattr(self.spec, name) for name in ("num_envs", "first_env", "num_recorded")}
        return {"adapter": self.setup.adapter, **self.spec.kwargs, **counts}

    def decode(self, reply: bytes) -> tuple[str, Any]:
        """See ``PoolProcess``; an answer becomes ``Spaces``, ``RawReset``, ``RawChunk`` or versions by name."""
        try:
            kind, answer = read_reply(reply, self._request, self._shared)
        except WireError as error:
            raise EnvironmentFailure(f"{self} sent what is no reply to '{self._request.kind}': {error}") from error
        self._heard_at = time.monotonic()
        if kind == "alive":
            self._report = answer
            self.progress = answer["progress"]
        elif isinstance(answer, Spaces):
            self._spaces = answer
        return kind, answer

    def receive(self) -> bytes:
        """See ``PoolProcess``; a message is neither longer than allowed nor stops in its midst."""
        try:
            return self.connection.recv_bytes(MAX_BYTES)
        except BlockingIOError as error:
            raise EnvironmentFailure(
                f"{self} sent nothing for {_STALL_SECONDS} s in the midst of a message; it hangs, or is no guest."
            ) from error
        except OSError as error:
            if error.errno is not None:
                raise self.death() from error
            # Of no system call: the connection's own, about the length.
            raise EnvironmentFailure(f"{self} sent a message of more than {MAX_BYTES} bytes.") from error
        except EOFError as error:
            raise self.death() from error

    def condition(self) -> str:
        """Return whether the guest hangs or computes, as its heartbeats tell."""
        now = time.monotonic()
        silence = now - self._heard_at
        if silence > _SILENT_HEARTBEATS * HEARTBEAT_SECONDS:
            return f"no heartbeat for {silence:.0f} s, so it is stopped, or its simulator holds the interpreter"
        if not self._report:
            return f"it works on '{self._request.kind}' since {now - self._requested_at:.0f} s"
        return (
            f"it is alive, for {now - self._requested_at:.0f} s in '{self._request.kind}', and its simulator has taken "
            f"{self.progress:.0f} steps since it was built; the last of them does not end"
        )

    def farewell(self) -> None:
        """Have the guest close its simulator; it may have ended."""
        with contextlib.suppress(OSError):
            self.connection.send_bytes(encode(["close", {}]))

    def freeze(self) -> None:
        """Stop it in the midst of what it does; ``check_guest`` needs that."""
        self.process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        """End it at once; ``check_guest`` needs that."""
        self.process.kill()

    def __str__(self) -> str:
        return f"guest {super().__str__()}, adapter {self.setup.adapter} of {self.setup.python}"

    def _greet(self) -> None:
        """Wait for the guest's hello, and compare protocols."""
        if not self.connection.poll(self.setup.startup_timeout_seconds):
            raise EnvironmentFailure(
                f"{self} said nothing within {self.setup.startup_timeout_seconds:.0f} s; "
                "env.*.guest.startup_timeout_seconds says how long it may take."
            )
        try:
            hello = read_hello(self.receive())
        except WireError as error:
            raise EnvironmentFailure(f"{self} sent no greeting: {error}") from error
        spoken = hello["protocol"]
        if spoken != PROTOCOL:
            raise EnvironmentFailure(
                f"{self} speaks protocol {spoken}; this host speaks {PROTOCOL}. Both have to be of one version."
            )
        self.versions = {str(name): str(version) for name, version in hello["versions"].items()}


def _make_shared_file() -> int:
    """Return the descriptor of a file in memory; it takes as much of it as was written to."""
    descriptor = os.memfd_create("rlinf-guest", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, MAX_BYTES)
    # A guest that made it shorter would end its host, which reads it.
    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def _limit_stalls(descriptor: int) -> None:
    """Have reads and writes of a socket fail that neither get nor give a byte for a while."""
    limit = struct.pack("ll", _STALL_SECONDS, 0)
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)


def chunk_request(request: ChunkRequest) -> dict[str, Any]:
    """Return a chunk's request as a guest takes it."""
    return {
        "actions": np.asarray(request.actions),
        "active": request.active,
        "steps": request.steps,
        "next_seeds": request.next_seeds,
        "rule": [request.rule.max_episode_steps, request.rule.ignore_terminations],
        "observes": request.observes,
    }
