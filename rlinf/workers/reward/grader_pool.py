"""Processes that answer requests one at a time, and are replaced when they do not answer in time."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlinf.errors import RewardError

_START_SECONDS = 300.0
"""Importing what a grader needs takes seconds; on a busy machine, many of them."""
_KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME")
"""Environment variables that Python may need; graders read untrusted texts and get no others."""


class GraderPool:
    """A fixed number of processes that run one script; safe to call from several threads.

    The script is called with ``timeout_seconds``, writes the line ``{"ready": true}`` when it is, and then answers each
    line of JSON on standard input by one on standard output.

    Args:
        script: The script.
        num_processes: Their number; each is started when it is first needed.
        timeout_seconds: Time that an answer may take.
    """

    def __init__(self, script: Path, *, num_processes: int, timeout_seconds: float) -> None:
        self._idle: queue.SimpleQueue[_Grader] = queue.SimpleQueue()
        self._graders = [_Grader(script, timeout_seconds) for _ in range(num_processes)]
        for grader in self._graders:
            self._idle.put(grader)

    def query(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the answer to a request, or None where the process died or did not answer in time.

        Args:
            request: What can be written as JSON.

        Raises:
            RewardError: A process could not be started.
        """
        grader = self._idle.get()
        try:
            return grader.query(request)
        finally:
            self._idle.put(grader)

    def close(self) -> None:
        """End the processes."""
        for grader in self._graders:
            grader.stop()


class _Grader:
    def __init__(self, script: Path, timeout_seconds: float) -> None:
        self._command = [sys.executable, "-B", str(script), str(timeout_seconds)]
        self._timeout = timeout_seconds
        self._process: subprocess.Popen[bytes] | None = None

    def query(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        if self._process is None:
            self._process = self._start()
        answer = None
        with contextlib.suppress(OSError, ValueError):  # it has died, or what it wrote is no answer
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(dict(request)).encode() + b"\n")
            self._process.stdin.flush()
            answer = self._read(self._process, self._timeout)
        if not isinstance(answer, dict):
            self.stop()
            return None
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
        )
        self._process = process
        try:
            ready = self._read(process, _START_SECONDS)
        except ValueError:
            ready = None
        if ready is None:
            self.stop()
            raise RewardError(
                f"{Path(self._command[2]).name} did not start (exit code {process.returncode}). Run "
                f"'{' '.join(self._command)}' to see why."
            )
        return process

    def _read(self, process: subprocess.Popen[bytes], seconds: float) -> Any:
        """Return the next line as JSON; None where there is none in time."""
        assert process.stdout is not None
        deadline, text = time.monotonic() + seconds, b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not text.endswith(b"\n"):
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    return None
                part = os.read(process.stdout.fileno(), 1 << 16)
                if not part:
                    return None
                text += part
        return json.loads(text)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            for stream in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):  # what was never written cannot be flushed
                    assert stream is not None
                    stream.close()
            process.wait()
