"""The boundary at which typed errors become one clean message and an exit code."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable

from rlinf.errors import (
    CheckpointError,
    ClusterError,
    ConfigError,
    DatasetError,
    MissingPackageError,
    RLinfError,
    WorkerError,
)
from rlinf.utils.signals import Terminated

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143
"""128 + SIGINT and 128 + SIGTERM, as shells have it."""

_FULL = "Free some space on that disk, or set runner.logger.log_path to a folder on a larger one."
_FORBIDDEN = "Set runner.logger.log_path to a folder that you can write to, or ask who owns it."
_REMEDIES = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: f"{_FULL} Where a limit on files is set, `ulimit -f unlimited` lifts it.",
    errno.EROFS: _FORBIDDEN,
    errno.EACCES: _FORBIDDEN,
}
"""What to do about faults of disks, which are no faults of the program."""

# Where code of the user's may have raised, an environment or a reward, the traceback says where.
_EXPLAINED = (CheckpointError, ClusterError, ConfigError, DatasetError, MissingPackageError)


def run_and_report(action: Callable[[], int | None]) -> int:
    """Run ``action`` and return the process's exit code.

    An ``RLinfError`` is printed to stderr without its traceback (``RLINF_LOG_LEVEL=DEBUG`` shows it) and gives 1;
    a full disk, or one that cannot be written to, too. Ctrl-C gives 130, and SIGTERM to a run 143. Any other exception
    is a bug and passes through with its traceback.

    Args:
        action: What to run; it may return an exit code of its own.
    """
    try:
        return action() or 0
    except RLinfError as error:
        return _report(_told(error), _remedy_within(str(error)))
    except Terminated:
        print("Terminated.", file=sys.stderr)
        return EXIT_TERMINATED
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has gone; without this the interpreter complains again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_ERROR
    except OSError as error:
        if error.errno not in _REMEDIES:
            raise
        return _report(str(error), _REMEDIES[error.errno])


def _told(error: RLinfError) -> str:
    """Return the text of an error, without the traceback of a worker that said itself what is wrong and what to do."""
    if isinstance(error, WorkerError) and isinstance(error.__cause__, _EXPLAINED):
        return str(error).partition("\n--- traceback of ")[0] + " (RLINF_LOG_LEVEL=DEBUG shows the traceback.)"
    return str(error)


def _report(text: str, remedy: str) -> int:
    if os.environ.get("RLINF_LOG_LEVEL", "").upper() == "DEBUG":
        traceback.print_exc()
    print(f"Error: {text}", file=sys.stderr)
    if remedy:
        print(remedy, file=sys.stderr)
    return EXIT_ERROR


def _remedy_within(text: str) -> str:
    """Return what to do about a full disk that a worker's error reports: its text alone has travelled here."""
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return next((_REMEDIES[number] for number in full if os.strerror(number) in text), "")
