"""Entry point of one process of the pool: ``python -m rlinf.envs.process_main <connection fd> <lifeline fd>``.

Imports numpy and the environment only. Leaves when its parent does: end-of-file on the connection while idle; in the
midst of a step the kernel's SIGIO, which the lifeline raises when the parent's end of it closes.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any


def watch_lifeline(descriptor: int) -> None:
    """Have the kernel end this process (SIGIO, default action) when the other end of a pipe closes."""
    # PR_SET_PDEATHSIG would not do: it fires when the parent's thread ends, and an environment may well be built in a
    # short-lived one.
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_ASYNC)


def serve(connection: Connection) -> None:
    """Build the environments that the first message describes, then answer requests until the connection closes."""
    from rlinf.envs.single_env import SingleEnvRows

    rows: SingleEnvRows | None = None
    while True:
        try:
            kind, *arguments = connection.recv()
        except EOFError:
            return
        try:
            answer: Any = None
            if kind == "build":
                rows = SingleEnvRows(pickle.loads(arguments[0]))
                answer = rows.spaces
            elif rows is not None:
                answer = rows.reset(*arguments) if kind == "reset" else rows.run_chunk(*arguments)
            reply = ("ok", answer)
        except Exception as error:  # noqa: BLE001 - the boundary: the parent raises it
            reply = ("error", (type(error).__name__, str(error), _cause(error)))
        try:
            connection.send_bytes(pickle.dumps(reply, pickle.HIGHEST_PROTOCOL))
        except BrokenPipeError:
            return


def _cause(error: Exception) -> str:
    return "".join(traceback.format_exception(error.__cause__ or error))


def main() -> None:
    """Serve on the descriptors given on the command line."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    watch_lifeline(int(sys.argv[2]))
    serve(Connection(int(sys.argv[1])))


if __name__ == "__main__":
    main()
