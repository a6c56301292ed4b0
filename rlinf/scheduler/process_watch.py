"""Notices that processes of this node have ended, also where Ray does not.

Ray learns of a worker's death from its connections. A child that the worker has forked holds them too, and keeps them
open for as long as it lives: a pool of a reward function's, say.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

# Ray reports more about a death, such as a lack of memory: where it notices one, it does so within this time.
_GRACE_SECONDS = 1.0
# Between two looks where the kernel cannot signal the end of a process.
_LOOK_SECONDS = 1.0


class ProcessId(NamedTuple):
    """A process of a node, distinguished from others that have had its number.

    Attributes:
        pid: Its number.
        started: When it started, in the kernel's ticks since the machine did.
        namespace: Which processes the number counts: those of its container, where it is in one.
    """

    pid: int
    started: int
    namespace: int

    @property
    def end(self) -> str:
        """What there is to say once it has ended."""
        return f"its process {self.pid} died"


def own_process() -> ProcessId | None:
    """Return this process; None on a system that does not report when it started."""
    started, namespace = _start_of(os.getpid()), _namespace()
    return None if started is None or namespace is None else ProcessId(os.getpid(), started, namespace)


class ProcessWatch:
    """Calls back when processes of this node have ended; all methods must be called on the loop's thread.

    Args:
        loop: Is woken by the kernel.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def add(self, process: ProcessId, on_end: Callable[[], None]) -> None:
        """Call ``on_end`` a moment after a process has ended, when Ray has had its say.

        One of another container, which cannot be seen from here, is not watched.
        """
        if process.namespace != _namespace():
            return
        try:
            if not _runs(process):
                raise ProcessLookupError(process.pid)  # its number may be another one's by now
            descriptor = os.pidfd_open(process.pid)
        except (AttributeError, OSError):
            self._look(process, on_end)
            return
        self._loop.add_reader(descriptor, self._signalled, descriptor, on_end)

    def _signalled(self, descriptor: int, on_end: Callable[[], None]) -> None:
        self._loop.remove_reader(descriptor)
        os.close(descriptor)
        self._loop.call_later(_GRACE_SECONDS, on_end)

    def _look(self, process: ProcessId, on_end: Callable[[], None]) -> None:
        following = partial(self._look, process, on_end) if _runs(process) else on_end
        self._loop.call_later(_LOOK_SECONDS, following)


def _runs(process: ProcessId) -> bool:
    return _start_of(process.pid) == process.started


def _namespace() -> int | None:
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return None


def _start_of(pid: int) -> int | None:
    """Return when a process started; None if it has ended, or cannot be seen."""
    try:
        # The name, in parentheses, may hold blanks and parentheses itself.
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return None if state in {"Z", "X"} else int(fields[18])
