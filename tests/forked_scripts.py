"""Scripts that tests start: forked off the server of workers, and watched as ``subprocess.Popen`` watches its own."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time

from tests import forked_workers
from tests.forked_workers import SOCKET, Start, is_forked, start_server

CHUNK_BYTES = 1 << 16


def start_script(arguments: list[str], environment: dict[str, str], folder: str) -> Script | subprocess.Popen[str]:
    """Start a script in a session of its own, whose outputs go to one pipe.

    Args:
        arguments: Its path, and what follows.
        environment: Its variables; those that cannot be had in a fork make it a process that imports all anew.
        folder: Its working folder.
    """
    start_server()
    with contextlib.suppress(ChildProcessError):
        return Script(arguments, environment, folder)
    return subprocess.Popen(
        [sys.executable, forked_workers.__file__, "--run", *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


class Script:
    """A script that is a fork of the server's; see ``start_script``.

    Attributes:
        returncode: None while it runs; that of a process which a signal has ended is the signal's number, negative.
        pid: The process.
    """

    def __init__(self, arguments: list[str], environment: dict[str, str], folder: str) -> None:
        """Start it.

        Raises:
            ChildProcessError: The server has none that is like it; see ``Start.is_like``.
        """
        self.returncode: int | None = None
        self._written = b""
        self._output, output = os.pipe()
        self._told, told = os.pipe()
        with open(os.devnull) as nothing:
            start = Start(["--run", *arguments], environment, sys.executable, folder)
            is_started = is_forked(start, os.environ[SOCKET], [nothing.fileno(), output, output, told])
        os.close(output)
        os.close(told)
        self._numbers = os.fdopen(self._told)
        if not is_started:
            self._close()
            raise ChildProcessError("a script with these variables cannot be forked")
        self.pid = int(self._numbers.readline())

    def poll(self) -> int | None:
        """Return ``returncode``, as it is now."""
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self.returncode = int(self._numbers.readline())
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send it SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """Wait for its end and return what it has written.

        Raises:
            subprocess.TimeoutExpired: It has not ended within so many seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        waiting = {self._output, self._told} if self.returncode is None else {self._output}
        while waiting:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready = select.select(waiting, [], [], left)[0]
            if not ready:
                raise subprocess.TimeoutExpired("a forked script", timeout or 0.0)
            if self._told in ready:
                self.poll()
                waiting.discard(self._told)
            if self._output in ready:
                data = os.read(self._output, CHUNK_BYTES)
                self._written += data
                if not data:
                    waiting.discard(self._output)
        self._close()
        return self._written.decode(errors="replace"), None

    def _close(self) -> None:
        os.close(self._output)
        self._numbers.close()
