"""Runs a program and then calls of its functions, inside the sandbox; a script of its own, with nothing but Python.

The first line of standard input says what to do: ``{"token": ..., "tests": [{"call": [name, arguments]} or {"code":
...}]}``. What each test came to is one line on standard output that begins with the token, which distinguishes it from
other lines; what the program prints is dropped.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main() -> None:
    """Run the tests one after the other."""
    request = json.loads(sys.stdin.readline())
    report = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    # Not "__main__": what a program does when it is started is no part of what its functions do.
    names: dict[str, Any] = {"__name__": "program"}
    with open("program.py", encoding="utf-8") as file:
        exec(compile(file.read(), "program.py", "exec"), names)
    for number, test in enumerate(request["tests"]):
        try:
            outcome = json.dumps({"test": number, "value": run(test, names)})
        except BaseException as error:  # noqa: BLE001 - user code; what it raised is reported
            outcome = json.dumps({"test": number, "error": type(error).__name__})
        os.write(report, f"{request['token']} {outcome}\n".encode())


def run(test: dict[str, Any], names: dict[str, Any]) -> Any:
    """Return what a call returns; None for code that did not raise."""
    if "code" in test:
        exec(test["code"], names)
        return None
    name, arguments = test["call"]
    return getattr(names["Solution"](), name)(*arguments) if "Solution" in names else names[name](*arguments)


if __name__ == "__main__":
    main()
