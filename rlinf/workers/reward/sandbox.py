"""Runs programs of unknown intent: without network, files, environment or other processes, and within limits."""

from __future__ import annotations

import contextlib
import json
import math
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlinf.errors import RewardError

_LAUNCHER = Path(__file__).with_name("sandbox_launcher.py")
_INTERPRETER = os.path.realpath(sys.executable)
_VISIBLE = ("/usr", "/bin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", sys.base_prefix, _INTERPRETER)
"""What programs see of the machine, read-only: the interpreter, and the libraries that it loads."""
_GRACE_SECONDS = 20.0
"""Beyond a program's time: starting it on a busy machine, and reporting its end."""
_FIRST_UID = 1 << 30
"""Users of programs start here, far from real ones; the launcher's process id is added, so that no two share one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """What a program may use.

    Attributes:
        timeout_seconds: Wall-clock time; it may use the same in seconds of one processor.
        memory_bytes: Address space of each process.
        output_bytes: Output that is read; a program that writes more is ended.
        file_bytes: Size of its private folder, and of each file.
        processes: Processes and threads at a time.
        open_files: Open files of each process.
    """

    timeout_seconds: float = 5.0
    memory_bytes: int = 512 << 20
    output_bytes: int = 1 << 20
    file_bytes: int = 16 << 20
    processes: int = 16
    open_files: int = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a program ended.

    Attributes:
        exit_code: Its exit code, or minus the signal that ended it; None where it was ended for time or output.
        output: What it wrote to standard output, at most ``output_bytes``.
    """

    exit_code: int | None
    output: bytes


class Sandbox:
    """Starts programs, each in a sandbox of its own; safe to call from several threads.

    Args:
        limits: What each program may use.
        isolate: Use namespaces and another user. Without them only the limits hold: a program can read and write what
            this process can, and reach the network.
    """

    def __init__(self, limits: SandboxLimits, *, isolate: bool = True) -> None:
        self.limits = limits
        self.isolate = isolate
        self._folder = tempfile.mkdtemp(prefix="rlinf-sandbox-")

    def close(self) -> None:
        """Remove the folder that sandboxes are mounted on."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, files: Mapping[str, str], stdin: str = "") -> Outcome:
        """Run ``main.py`` and wait for its end.

        Args:
            files: Files in the program's working directory by name, ``main.py`` among them.
            stdin: What it reads from standard input.

        Raises:
            RewardError: The sandbox could not be set up; the message names what is missing.
        """
        with contextlib.ExitStack() as stack:
            work = "/tmp" if self.isolate else stack.enter_context(self._work_folder())
            handed = stack.enter_context(_readable(json.dumps(dict(files)).encode()))
            text = stack.enter_context(_readable(stdin.encode("utf-8", "replace")))
            read_status, write_status = os.pipe()
            stack.callback(os.close, read_status)
            try:
                launcher = self._launch(work, files=handed, stdin=text, status=write_status)
            finally:
                os.close(write_status)
            with launcher:
                return self._outcome(launcher, read_status)

    @contextlib.contextmanager
    def _work_folder(self) -> Iterator[str]:
        folder = tempfile.mkdtemp(dir=self._folder)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _launch(self, work: str, *, files: int, stdin: int, status: int) -> subprocess.Popen[bytes]:
        plan = self._plan(work) | {"files": files, "status": status}
        return subprocess.Popen(
            [_INTERPRETER, "-I", "-S", "-B", str(_LAUNCHER), json.dumps(plan)],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=(files, status),
            start_new_session=True,
            env={},
            cwd="/",
        )

    def _plan(self, work: str) -> dict[str, Any]:
        limits = self.limits
        return {
            "isolate": self.isolate,
            "root": self._folder,
            "visible": _VISIBLE,
            "work": work,
            "first_uid": _FIRST_UID,
            "timeout_seconds": limits.timeout_seconds,
            "tmp_bytes": limits.file_bytes,
            "command": [_INTERPRETER, "-I", "-B", "-X", "utf8", f"{work}/main.py"],
            "limits": {
                "RLIMIT_CPU": math.ceil(limits.timeout_seconds),
                "RLIMIT_AS": limits.memory_bytes,
                "RLIMIT_FSIZE": limits.file_bytes,
                "RLIMIT_NPROC": limits.processes,
                "RLIMIT_NOFILE": limits.open_files,
                "RLIMIT_CORE": 0,
                "RLIMIT_MSGQUEUE": 0,
            },
        }

    def _outcome(self, launcher: subprocess.Popen[bytes], status: int) -> Outcome:
        assert launcher.stdout is not None
        bounds = {launcher.stdout.fileno(): self.limits.output_bytes, status: 1 << 16}
        deadline = time.monotonic() + self.limits.timeout_seconds + _GRACE_SECONDS
        try:
            read = _read_all(bounds, deadline)
        finally:
            # The launcher's end is that of the first process in its namespaces, which is that of all others there.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(launcher.pid, signal.SIGKILL)
        output, told = read[launcher.stdout.fileno()], json.loads(read[status].partition(b"\n")[0] or b"{}")
        if "error" in told:
            raise RewardError(
                f"A program could not be isolated: {told['error']}. Isolation needs Linux and either root with "
                "CAP_SYS_ADMIN or unprivileged user namespaces (in a container: --cap-add SYS_ADMIN, or a seccomp "
                "profile that allows unshare and mount)."
            )
        return Outcome(exit_code=told.get("exit"), output=output)


def _read_all(bounds: Mapping[int, int], deadline: float) -> dict[int, bytes]:
    """Read several pipes to their ends; stop at the deadline, and when one of them exceeds its bound."""
    found = {pipe: bytearray() for pipe in bounds}
    with selectors.DefaultSelector() as selector:
        for pipe in bounds:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                part = os.read(key.fd, 1 << 16)
                found[key.fd] += part
                if not part:
                    selector.unregister(key.fd)
                elif len(found[key.fd]) > bounds[key.fd]:
                    return {pipe: bytes(text[: bounds[pipe]]) for pipe, text in found.items()}
    return {pipe: bytes(text) for pipe, text in found.items()}


@contextlib.contextmanager
def _readable(data: bytes) -> Iterator[int]:
    """Yield a file descriptor from which ``data`` can be read, and which nobody can write to."""
    written = os.memfd_create("rlinf-sandbox")
    try:
        with os.fdopen(os.dup(written), "wb") as file:
            file.write(data)
        readable = os.open(f"/proc/self/fd/{written}", os.O_RDONLY)
    finally:
        os.close(written)
    try:
        yield readable
    finally:
        os.close(readable)
