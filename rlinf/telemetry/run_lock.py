"""One process at a time works in a run's folder: an advisory lock that the system gives back when the process ends."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from rlinf.errors import RunLockedError
from rlinf.utils.logging import get_logger
from rlinf.utils.secrets import hide_in_argument

LOCK_FILE = "run.lock"

# What a file system answers that has no locks of this kind; some network file systems have none.
_UNSUPPORTED = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep every other process out of a run's folder within the block.

    The lock belongs to this process: its children do not inherit it, and it ends with the process however that ends.
    Where the file system has no locks, a warning says so and the block goes on without.

    Args:
        folder: The run's folder, which exists; the lock is its file ``run.lock``, which names the holder.

    Raises:
        RunLockedError: Another process holds the lock; the message names its host, process and command.
    """
    # Python's descriptors are closed on exec, so that Ray's processes do not hold the lock after the driver has ended.
    with open(folder / LOCK_FILE, "a+", encoding="utf-8") as file:
        _acquire(file, folder)
        file.truncate(0)
        file.write(json.dumps(_describe_process()) + "\n")
        file.flush()
        yield


def _acquire(file: IO[str], folder: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.seek(0)
        raise RunLockedError(
            f"{folder} is in use by {_describe_holder(file.read())}. Wait until that run has ended, end it, or choose "
            "another runner.logger.experiment_name."
        ) from error
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        get_logger(__name__).warning(
            "The file system of %s has no locks (%s): a second run in this folder at the same time is not noticed.",
            folder,
            error.strerror,
        )


def _describe_process() -> dict[str, object]:
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "command": [hide_in_argument(part) for part in (sys.executable, *sys.argv)],
        "started_at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _describe_holder(text: str) -> str:
    """Return who holds a lock, in words; the holder writes it a moment after it has taken the lock."""
    try:
        holder = json.loads(text)
        command = " ".join(map(str, holder["command"]))
        return (
            f"process {holder['pid']} on host {holder['host']}, which began at {holder['started_at']} with the command "
            f"'{command}'"
        )
    except (ValueError, KeyError, TypeError):
        return "another process, which has not written its name yet"
