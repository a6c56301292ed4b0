"""Environments in processes of their own: one message to each process per chunk, sent to all before any is awaited."""

from __future__ import annotations

import os
import pickle
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import numpy as np
import numpy.typing as npt

import rlinf.errors
from rlinf.envs.raw_chunk import ChunkRequest, RawChunk, RawReset, concatenate_rows
from rlinf.envs.single_env import SingleEnvSpec, Spaces
from rlinf.errors import EnvironmentFailure, RLinfError

# A simulator that takes longer than this for one chunk is stuck; the same limit as for messages between workers.
_TIMEOUT_SECONDS = 1800.0
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
# How long a closing pool waits for its processes before it ends them.
_CLOSE_SECONDS = 5.0
PENDING = object()
"""In place of an answer: the process works on it."""


class PoolProcess:
    """One process with environments of a pool, and the connection to it.

    Args:
        spec: Its environments.
        first_row: The first of them among the pool's.

    Raises:
        EnvironmentFailure: It did not start.
    """

    def __init__(self, spec: SingleEnvSpec, first_row: int) -> None:
        self.spec = spec
        self.first_row = first_row
        self.rows = slice(first_row, first_row + spec.num_envs)
        self.progress: float = 0
        """Grows while it works on a request, if it reports that."""
        self.connection = self.start()

    def start(self) -> Connection:
        """Start the process.

        Returns:
            The connection to it.
        """
        ours, theirs = socket.socketpair()
        # Never written to: through the child's end the kernel ends the child when ours closes. One pipe for each child,
        # because the receiver of the signal belongs to the pipe's end and not to the process.
        read_end, self._lifeline = os.pipe()
        with theirs:
            descriptors = [theirs.fileno(), read_end, *self.inherited()]
            self.process = subprocess.Popen(
                [*self.command(), *map(str, descriptors)], pass_fds=descriptors, env=self.environment()
            )
        os.close(read_end)
        return Connection(ours.detach())

    def command(self) -> list[str]:
        """Return the command that serves the descriptors which follow on its command line."""
        return [sys.executable, "-m", "rlinf.envs.process_main"]

    def inherited(self) -> list[int]:
        """Return further descriptors that it gets, behind those of the connection and the lifeline."""
        return []

    def environment(self) -> dict[str, str]:
        """Return the parent's environment with its module path: the process must import all that the parent can."""
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path),
            "PYTHONSAFEPATH": "1",
            **ONE_THREAD,
        }

    def encode(self, kind: str, *arguments: Any) -> bytes:
        """Return a request as it travels."""
        if kind == "build":
            arguments = (cloudpickle.dumps(self.spec),)
        # Connection.send makes a pickler that can carry descriptors and locks; that costs more than this data.
        return pickle.dumps((kind, *arguments), pickle.HIGHEST_PROTOCOL)

    def decode(self, reply: bytes) -> tuple[str, Any]:
        """Return a reply: ``ok`` and the answer, or ``error`` with the error's name, its text and the traceback."""
        kind, answer = pickle.loads(reply)
        return kind, answer

    def terminate(self) -> None:
        """Have the process end; ``join`` waits for that."""
        self.process.terminate()

    def join(self, deadline: float) -> None:
        """Wait for the process's end until a time of the monotonic clock, then force it."""
        try:
            self.process.wait(timeout=max(deadline - time.monotonic(), 0.05))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._lifeline)

    def send(self, *message: Any) -> None:
        """Send a request.

        Raises:
            EnvironmentFailure: The process has ended.
        """
        try:
            self.connection.send_bytes(self.encode(*message))
        except OSError as error:
            raise self.death() from error

    def recv(self) -> Any:
        """Return the answer to the last request, or ``PENDING`` for a message that says that it will come.

        Raises:
            EnvironmentFailure: The process has ended, or an environment raised.
        """
        kind, answer = self.decode(self.receive())
        if kind == "ok":
            return answer
        if kind == "alive":
            return PENDING
        name, text, trace = answer
        raise _error_of_class(name, f"{text}\nIn process {self}:\n{trace}")

    def receive(self) -> bytes:
        """Return the next message as it travelled.

        Raises:
            EnvironmentFailure: The process has ended.
        """
        try:
            return self.connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise self.death() from error

    def condition(self) -> str:
        """Return how the process is, in words, when an answer is late."""
        return "the simulator is stuck"

    def farewell(self) -> None:
        """Say that no request will come, before the connection is closed."""

    def death(self) -> EnvironmentFailure:
        """Return the error that reports the process's end."""
        try:
            code: int | None = self.process.wait(timeout=_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        reason = "closed its connection, or takes no message" if code is None else _exit_reason(code)
        return EnvironmentFailure(
            f"The process of {self} {reason}. Its last words are on the worker's standard error; "
            "env.*.num_env_processes=0 runs the environments in the worker itself, which shows a crash's origin."
        )

    def __str__(self) -> str:
        return f"{self.process.pid} {self.contents()}"

    def contents(self) -> str:
        """Return which environments it has, in words."""
        last = self.spec.first_env + self.spec.num_envs - 1
        return f"(env_type={self.spec.env_type}, environments {self.spec.first_env}-{last})"


class ProcessPool:
    """Steps the environments of a specification in several processes.

    Sending and gathering are separate calls, so that a caller may do other work in between. The pool is closed by the
    first failure: environments in an unknown state answer no further request.

    Args:
        spec: The environments.
        num_processes: Processes; rows are shared out in contiguous, nearly equal parts.
        timeout_seconds: How long one answer may take, counted from when a process last said that it came further.
        build_timeout_seconds: How long a process may take to build its environments; None is ``timeout_seconds``.
        process: What each process is.

    Raises:
        EnvironmentFailure: A process ended, or an environment raised, while it started.
        RLinfError: RLinf's own errors, as the factory raised them.
    """

    def __init__(
        self,
        spec: SingleEnvSpec,
        num_processes: int,
        *,
        timeout_seconds: float = _TIMEOUT_SECONDS,
        build_timeout_seconds: float | None = None,
        process: Callable[[SingleEnvSpec, int], PoolProcess] = PoolProcess,
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._children: list[PoolProcess] = []
        self._waiting: list[PoolProcess] = []
        self._failure: RLinfError | None = None
        self._closed = False
        self._selector = selectors.DefaultSelector()
        bounds = np.linspace(0, spec.num_envs, min(num_processes, spec.num_envs) + 1).astype(int).tolist()
        try:
            for start, stop in zip(bounds[:-1], bounds[1:], strict=True):
                child = process(spec.rows(start, stop), start)
                self._children.append(child)
                self._selector.register(child.connection, selectors.EVENT_READ, child)
            self._post([(child, ("build",)) for child in self._children])
            limit = build_timeout_seconds or timeout_seconds
            remedy = (
                "; env.*.guest.build_timeout_seconds says how long building may take" if build_timeout_seconds else ""
            )
            self.spaces: Spaces = self._gather(limit, remedy)[0][1]
        except BaseException:
            self.close()
            raise

    @property
    def processes(self) -> Sequence[PoolProcess]:
        """Its processes, by their rows."""
        return self._children

    def send_chunk(self, request: ChunkRequest) -> None:
        """Start a chunk in every process."""
        self._post([(child, ("chunk", request.rows(child.rows))) for child in self._children])

    def recv_chunk(self) -> RawChunk:
        """Return the chunk started last.

        Raises:
            EnvironmentFailure: An environment raised, or a process ended or did not answer in time.
        """
        return RawChunk.concatenate([(child.first_row, chunk) for child, chunk in self._gather()])

    def reset(self, rows: npt.NDArray[np.int64], seeds: npt.NDArray[np.int64]) -> RawReset:
        """Reset some environments; ``seeds[i]`` is for row ``rows[i]``, and rows ascend.

        Raises:
            EnvironmentFailure: An environment raised, or a process ended or did not answer in time.
        """
        messages = []
        for child in self._children:
            chosen = (rows >= child.rows.start) & (rows < child.rows.stop)
            if chosen.any():
                messages.append((child, ("reset", rows[chosen] - child.first_row, seeds[chosen])))
        self._post(messages)
        parts = self._gather()
        return RawReset(
            obs=concatenate_rows([part.obs for _, part in parts]),
            frames={child.first_row + row: frame for child, part in parts for row, frame in part.frames.items()},
            render_error=next((part.render_error for _, part in parts if part.render_error), None),
        )

    def versions(self) -> dict[str, str]:
        """Return what guests say that their results depend on; all of them have the same simulator.

        Raises:
            EnvironmentFailure: A process ended, or did not answer in time.
        """
        self._post([(self._children[0], ("versions",))])
        found: dict[str, str] = self._gather()[0][1]
        return found

    def close(self) -> None:
        """End all processes; harmless when called again."""
        if self._closed:
            return
        self._closed = True
        self._selector.close()
        for child in self._children:
            if not self._waiting and self._failure is None:
                child.farewell()
            child.connection.close()
        if self._waiting or self._failure is not None:
            for child in self._children:
                child.terminate()
        deadline = time.monotonic() + _CLOSE_SECONDS
        for child in self._children:
            child.join(deadline)

    def _post(self, messages: Sequence[tuple[PoolProcess, tuple[Any, ...]]]) -> None:
        if self._closed:
            raise EnvironmentFailure("The environments are closed.") from self._failure
        self._waiting = [child for child, _ in messages]
        for child, message in messages:
            self._guard(partial(child.send, *message))

    def _gather(self, limit_seconds: float | None = None, remedy: str = "") -> list[tuple[PoolProcess, Any]]:
        limit = limit_seconds or self._timeout_seconds
        answers: dict[int, Any] = {}
        order = self._waiting
        deadline = time.monotonic() + limit
        while len(answers) < len(order):
            left = deadline - time.monotonic()
            ready = self._selector.select(left) if left > 0 else []
            if not ready:
                late = [child for child in order if child.first_row not in answers]
                self._guard(partial(self._raise_timeout, late, limit, remedy))
            for key, _ in ready:
                before = key.data.progress
                answer = self._guard(key.data.recv)
                if answer is not PENDING:
                    answers[key.data.first_row] = answer
                elif key.data.progress > before:
                    deadline = time.monotonic() + limit
        self._waiting = []
        return [(child, answers[child.first_row]) for child in order]

    def _guard(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except RLinfError as error:
            self._failure = error
            self.close()
            raise

    def _raise_timeout(self, children: list[PoolProcess], limit_seconds: float, remedy: str) -> None:
        late = ", ".join(f"{child}: {child.condition()}" for child in children)
        raise EnvironmentFailure(f"No answer within {limit_seconds:.0f} s from process {late}{remedy}.")


def _error_of_class(name: str, text: str) -> RLinfError:
    """Return an error of RLinf by its class's name; any other is the environment's."""
    error_class = getattr(rlinf.errors, name, None)
    if isinstance(error_class, type) and issubclass(error_class, RLinfError):
        try:
            return error_class(text)
        except TypeError:  # of a class that takes more than a text
            return EnvironmentFailure(f"{name}: {text}")
    return EnvironmentFailure(text)


def _exit_reason(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
