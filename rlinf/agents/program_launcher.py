"""Becomes a program that does not outlive its parent: ``python program_launcher.py <lifeline fd> <command>...``.

Imports nothing of the project, as it starts once per episode.
"""

from __future__ import annotations

import fcntl
import os
import sys


def main() -> None:
    """Have the kernel end the process group (SIGIO, default action) when the lifeline closes; become the program."""
    descriptor, command = int(sys.argv[1]), sys.argv[2:]
    os.set_inheritable(descriptor, True)
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, -os.getpgid(0))
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_ASYNC)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
