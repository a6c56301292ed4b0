"""Compares mathematical expressions, one request per line; a script of its own, so that it can be killed.

Speaks as ``rlinf.workers.reward.grader_pool`` expects. A comparison that takes too long cannot be interrupted from
within: the alarm ends this process, even if the parent process has gone.
"""

from __future__ import annotations

import functools
import importlib
import json
import logging
import math
import os
import resource
import signal
import sys
from typing import Any

_MEMORY_BYTES = 2 << 30
_FORBIDDEN = ("socket.", "subprocess.", "os.", "shutil.", "ctypes.", "pty.", "ftplib.", "urllib.")
_HARMLESS = {"os.listdir", "os.scandir"}


def main() -> None:
    """Answer requests until there are no more."""
    # The folder of this script holds modules of rlinf, which may not hide others of the same name.
    del sys.path[0]
    timeout = math.ceil(float(sys.argv[1])) + 1
    math_verify = importlib.import_module("math_verify")
    logging.disable(logging.CRITICAL)
    grade(math_verify, "1", "\\boxed{1}")
    confine()
    answer({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        signal.alarm(timeout)
        answer({"equal": grade(math_verify, request["solution"], request["answer"])})
        signal.alarm(0)


def answer(message: dict[str, Any]) -> None:
    """Write one line."""
    os.write(1, json.dumps(message).encode() + b"\n")


def confine() -> None:
    """Give up what comparing needs not, in case that a text is taken for code by some parser."""
    for name, bound in ((resource.RLIMIT_AS, _MEMORY_BYTES), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(name, (bound, bound))
    sys.addaudithook(forbid)


def forbid(event: str, arguments: tuple[Any, ...]) -> None:
    """Raise for everything that reaches beyond this process."""
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if writes or (event.startswith(_FORBIDDEN) and event not in _HARMLESS):
        raise PermissionError(event)


def grade(math_verify: Any, solution: str, given: str) -> bool:
    """Return whether ``given`` ends with what equals ``solution``; False if either cannot be parsed."""
    try:
        return bool(
            math_verify.verify(
                parse_solution(math_verify, solution),
                math_verify.parse(given, parsing_timeout=None),
                timeout_seconds=None,
            )
        )
    except BaseException:  # noqa: BLE001 - parsers of hostile text raise anything; it has then not been understood
        return False


@functools.lru_cache(maxsize=256)
def parse_solution(math_verify: Any, solution: str) -> Any:
    """Return a solution as ``math_verify`` reads it; cached, as all responses of a group share it."""
    text = solution if "$" in solution or "\\boxed" in solution else f"${solution}$"
    return math_verify.parse(text, parsing_timeout=None)


if __name__ == "__main__":
    main()
