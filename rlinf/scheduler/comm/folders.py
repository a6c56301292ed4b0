"""A run's private folders on one node: for its sockets, and for its shared memory.

The folder's lock is held by every process of the run that uses it, and dropped by the kernel when they die; so what a
run leaves behind when all of it is killed at once is found and removed by the next run.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

from rlinf.errors import ClusterError

SHARED_MEMORY = Path("/dev/shm")

# Limits: bytes of a Unix socket's path, characters of its name and of the run's.
_SOCKET_PATH_BYTES, _UID_LENGTH, _NAMESPACE_LENGTH = 107, 16, 8
_SHORT_BASE = Path("/tmp")

# A folder younger than this may belong to a process that has not locked it yet.
_SWEEP_AGE_SECONDS = 60.0


class RunFolder:
    """A folder that only this user may enter, locked as long as it is open.

    Args:
        base: Where the folder is.
        namespace: Name of the run.

    Raises:
        ClusterError: Another user owns the folder, or may enter it.
        OSError: ``base`` cannot be written to.
    """

    def __init__(self, base: Path, namespace: str) -> None:
        _sweep(base)
        self.path = _folder(base, namespace)
        self.path.mkdir(mode=0o700, exist_ok=True)
        status = self.path.lstat()
        if status.st_uid != os.getuid() or status.st_mode & 0o077 or self.path.is_symlink():
            raise ClusterError(
                f"{self.path} must be a folder that only this user may enter; remove it and start again."
            )
        self._lock = _lock(self.path, fcntl.LOCK_SH)

    def close(self) -> None:
        """Drop the lock."""
        os.close(self._lock)


def temporary_base() -> Path:
    """Return the folder for segments where there is too little shared memory."""
    return Path(tempfile.gettempdir())


def socket_base() -> Path:
    """Return the folder for sockets: the temporary one unless its path is too long for them, as in some batch jobs."""
    base = temporary_base()
    longest = _folder(base, "n" * _NAMESPACE_LENGTH) / ("u" * _UID_LENGTH)
    return base if len(os.fsencode(longest)) <= _SOCKET_PATH_BYTES else _SHORT_BASE


def remove_run_folders(namespace: str) -> None:
    """Delete the run's folders on this node."""
    for base in _bases():
        shutil.rmtree(_folder(base, namespace), ignore_errors=True)


def segments_folder(base: Path, namespace: str, uid: str) -> Path:
    """Return where a process of the run has its segments."""
    return _folder(base, namespace) / f"{uid}.d"


def remove_process(namespace: str, uid: str) -> None:
    """Delete what a dead process of this node has left: segments that others have mapped stay valid for them."""
    for base in _bases():
        shutil.rmtree(segments_folder(base, namespace, uid), ignore_errors=True)
    with contextlib.suppress(OSError):
        (_folder(socket_base(), namespace) / uid).unlink()


def _bases() -> set[Path]:
    return {socket_base(), temporary_base(), SHARED_MEMORY}


def _folder(base: Path, namespace: str) -> Path:
    return base / f"rlinf_{os.getuid()}_{namespace}"


def _sweep(base: Path) -> None:
    """Remove folders of runs that ended without cleaning up: no process holds their lock."""
    for folder in base.glob(f"rlinf_{os.getuid()}_*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > _SWEEP_AGE_SECONDS:
                probe = _lock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
                os.close(probe)


def _lock(folder: Path, mode: int) -> int:
    """Return the descriptor that holds the folder's lock; the kernel drops it when the process dies."""
    descriptor = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, mode)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
