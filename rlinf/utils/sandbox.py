"""Runs programs of unknown intent: without network, files, environment or other processes, and within limits."""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
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
from typing import Any, Literal

from rlinf.errors import RewardError

_LAUNCHER = Path(__file__).with_name("sandbox_launcher.py")
_INTERPRETER = os.path.realpath(sys.executable)
_VISIBLE = ("/usr", "/bin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", sys.base_prefix, _INTERPRETER)
"""What programs see of the machine, read-only: the interpreter, and the libraries that it loads."""
_GRACE_SECONDS = 20.0
"""Beyond a program's wall-clock time: setting up its sandbox on a busy machine, and reporting its end."""
_END_SECONDS = 5.0
"""For a launcher to end what it supervises, before it is ended itself."""
_WALL_FACTOR = 12.0
"""Wall-clock seconds for each second of processor time: what 12 programs on one processor take."""
_START_FACTOR = 2.0
"""Starting the interpreter may take this many times what it took when the sandbox was made."""
_CHECK_SECONDS = 60.0
"""Processor time of the program that checks the sandbox, which ends long before."""
_ERROR_BYTES = 4096
"""End of a program's standard error that is kept."""

LimitName = Literal["timeout", "memory", "processes", "output"]
_FIRST_UID = 1 << 30
"""Users of programs start here, far from real ones; the launcher's process id is added, so that no two share one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """What a program may use.

    Attributes:
        timeout_seconds: Processor time of all its processes together; starting the interpreter is not counted.
        wall_seconds: Wall-clock time, waiting for a processor and sleeping included; None takes twelve times
            ``timeout_seconds``.
        memory_bytes: Memory of all its processes together, and address space of each.
        output_bytes: Output that is read; a program that writes more is ended.
        file_bytes: Size of its private folder, and of each file.
        processes: Processes and threads at a time.
        open_files: Open files of each process.
    """

    timeout_seconds: float = 5.0
    wall_seconds: float | None = None
    memory_bytes: int = 512 << 20
    output_bytes: int = 1 << 20
    file_bytes: int = 16 << 20
    processes: int = 16
    open_files: int = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a program ended.

    Attributes:
        exit_code: Its exit code, or minus the signal that ended it; None where the sandbox ended it.
        output: What it wrote to standard output, at most ``output_bytes``.
        errors: The end of what it wrote to standard error.
        killed_for: The limit for which the sandbox ended it; None where it ended by itself.
        cpu_seconds: Processor time that it took, the interpreter's start included; 0 where the sandbox ended it.
    """

    exit_code: int | None
    output: bytes
    errors: bytes = b""
    killed_for: LimitName | None = None
    cpu_seconds: float = 0.0


class Sandbox:
    """Starts programs, each in a sandbox of its own; safe to call from several threads.

    Args:
        limits: What each program may use.
        isolate: Use namespaces and another user. Without them only the limits hold: a program can read and write what
            this process can, and reach the network.

    Raises:
        RewardError: A sandbox cannot be set up here, or a program that prints a word does not work in it; the message
            names what is missing.
    """

    def __init__(self, limits: SandboxLimits, *, isolate: bool = True) -> None:
        self.limits = limits
        self.isolate = isolate
        self._folder = tempfile.mkdtemp(prefix="rlinf-sandbox-")
        try:
            self._start_seconds = self._check()
        except BaseException:
            self.close()
            raise

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
        limits = self.limits
        wall = _WALL_FACTOR * limits.timeout_seconds if limits.wall_seconds is None else limits.wall_seconds
        return self._run(files, stdin, limits.timeout_seconds + _START_FACTOR * self._start_seconds, wall)

    def _check(self) -> float:
        """Run a program that has nothing to do but to start; return its processor time."""
        word = secrets.token_hex(8)
        outcome = self._run({"main.py": f"print('{word}')"}, "", _CHECK_SECONDS, _CHECK_SECONDS)
        if outcome.exit_code == 0 and outcome.output.strip() == word.encode():
            return outcome.cpu_seconds
        ended = f"ended with exit code {outcome.exit_code}"
        if outcome.killed_for is not None:
            ended = f"was ended: it exceeded its limit of {outcome.killed_for}"
        raise RewardError(
            f"The sandbox does not work: in it, a program that prints a word {ended} and printed "
            f"{outcome.output[:100]!r}; its last error: {outcome.errors.decode('utf-8', 'replace').strip()[-500:]!r}. "
            f"The interpreter {_INTERPRETER} must start without environment variables (such as LD_LIBRARY_PATH) within "
            f"{self.limits.memory_bytes} bytes of memory, and find all it loads in {', '.join(_VISIBLE)}."
        )

    def _run(self, files: Mapping[str, str], stdin: str, cpu_seconds: float, wall_seconds: float) -> Outcome:
        with contextlib.ExitStack() as stack:
            work = "/tmp" if self.isolate else stack.enter_context(self._work_folder())
            handed = stack.enter_context(_readable(json.dumps(dict(files)).encode()))
            text = stack.enter_context(_readable(stdin.encode("utf-8", "replace")))
            read_status, write_status = os.pipe()
            stack.callback(os.close, read_status)
            plan = self._plan(work, cpu_seconds) | {"wall_seconds": wall_seconds}
            try:
                launcher = self._launch(plan, files=handed, stdin=text, status=write_status)
            finally:
                os.close(write_status)
            with launcher:
                return self._outcome(launcher, read_status, time.monotonic() + wall_seconds + _GRACE_SECONDS)

    @contextlib.contextmanager
    def _work_folder(self) -> Iterator[str]:
        folder = tempfile.mkdtemp(dir=self._folder)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _launch(self, plan: dict[str, Any], *, files: int, stdin: int, status: int) -> subprocess.Popen[bytes]:
        plan = plan | {"files": files, "status": status}
        return subprocess.Popen(
            [_INTERPRETER, "-I", "-S", "-B", str(_LAUNCHER), json.dumps(plan)],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(files, status),
            start_new_session=True,
            env={},
            cwd="/",
        )

    def _plan(self, work: str, cpu_seconds: float) -> dict[str, Any]:
        limits = self.limits
        return {
            "isolate": self.isolate,
            "user_namespace": os.geteuid() != 0,
            "root": self._folder,
            "visible": _VISIBLE,
            "work": work,
            "first_uid": _FIRST_UID,
            "cpu_seconds": cpu_seconds,
            "memory_bytes": limits.memory_bytes,
            "tmp_bytes": limits.file_bytes,
            "command": [_INTERPRETER, "-I", "-B", "-X", "utf8", f"{work}/main.py"],
            "limits": {
                "RLIMIT_CPU": math.ceil(cpu_seconds),
                "RLIMIT_AS": limits.memory_bytes,
                "RLIMIT_FSIZE": limits.file_bytes,
                "RLIMIT_NPROC": limits.processes,
                "RLIMIT_NOFILE": limits.open_files,
                "RLIMIT_CORE": 0,
                "RLIMIT_MSGQUEUE": 0,
            },
        }

    def _outcome(self, launcher: subprocess.Popen[bytes], status: int, deadline: float) -> Outcome:
        assert launcher.stdout is not None
        assert launcher.stderr is not None
        stdout, stderr = launcher.stdout.fileno(), launcher.stderr.fileno()
        bounds = {stdout: self.limits.output_bytes, status: 1 << 16}
        try:
            read, exceeded = _read_all(bounds, {stderr: _ERROR_BYTES}, deadline)
            if exceeded:
                _signal_group(launcher, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                launcher.wait(_END_SECONDS)
        finally:
            # The launcher's end is that of the first process in its namespaces, which is that of all others there.
            _signal_group(launcher, signal.SIGKILL)
        reported = json.loads(read[status].partition(b"\n")[0] or b"{}")
        if "error" in reported:
            raise RewardError(
                f"A program could not be isolated: {reported['error']}. Isolation needs Linux and either root with "
                "CAP_SYS_ADMIN or unprivileged user namespaces (in a container: --cap-add SYS_ADMIN, or a seccomp "
                "profile that allows unshare and mount)."
            )
        return Outcome(
            exit_code=None if exceeded else reported.get("exit"),
            output=read[stdout],
            errors=read[stderr],
            killed_for=exceeded or reported.get("killed_for"),
            cpu_seconds=reported.get("cpu_seconds", 0.0),
        )


def _signal_group(launcher: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(launcher.pid, number)


def _read_all(
    bounds: Mapping[int, int], tails: Mapping[int, int], deadline: float
) -> tuple[dict[int, bytes], Literal["timeout", "output"] | None]:
    """Read several pipes to their ends; stop at the deadline, and when one exceeds its bound.

    Args:
        bounds: Bytes that each pipe may hold.
        tails: Further pipes, and how many of their last bytes are kept.
        deadline: On the monotonic clock.

    Returns:
        What was read from each, and why reading stopped before the end.
    """
    found = {pipe: bytearray() for pipe in (*bounds, *tails)}
    stopped: Literal["timeout", "output"] | None = None
    with selectors.DefaultSelector() as selector:
        for pipe in found:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map() and not stopped:
            left = deadline - time.monotonic()
            if left <= 0:
                stopped = "timeout"
            for key, _ in selector.select(max(left, 0)):
                part = os.read(key.fd, 1 << 16)
                found[key.fd] += part
                if not part:
                    selector.unregister(key.fd)
                elif key.fd in tails:
                    del found[key.fd][: -tails[key.fd]]
                elif len(found[key.fd]) > bounds[key.fd]:
                    stopped = "output"
    return {pipe: bytes(text[: bounds.get(pipe)]) for pipe, text in found.items()}, stopped


@contextlib.contextmanager
def _readable(data: bytes) -> Iterator[int]:
    """Yield a file descriptor from which ``data`` can be read, and not written to."""
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
