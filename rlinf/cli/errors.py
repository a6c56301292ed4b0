"""The boundary at which typed errors become one clean message and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable

from rlinf.errors import RLinfError

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130
"""128 + SIGINT, as shells have it."""


def run_and_report(action: Callable[[], int | None]) -> int:
    """Run ``action`` and return the process's exit code.

    An ``RLinfError`` is printed to stderr without its traceback (``RLINF_LOG_LEVEL=DEBUG`` shows it) and gives 1;
    Ctrl-C gives 130. Any other exception is a bug and passes through with its traceback.

    Args:
        action: What to run; it may return an exit code of its own.
    """
    try:
        return action() or 0
    except RLinfError as error:
        if os.environ.get("RLINF_LOG_LEVEL", "").upper() == "DEBUG":
            traceback.print_exc()
        print(f"Error: {error}", file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has gone; without this the interpreter complains again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_ERROR
