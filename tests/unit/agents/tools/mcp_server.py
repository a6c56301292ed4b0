"""A server of the Model Context Protocol that tests start in a process of its own."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from mcp.server import MCPServer

server = MCPServer("tests")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def pid() -> int:
    """Say which process this is."""
    return os.getpid()


@server.tool()
def behave(how: str) -> str:
    """Do what a server should not."""
    if how == "raise":
        raise ValueError("of my own")
    if how == "exit":
        os._exit(3)
    if how == "stay":
        time.sleep(1000)
    if how == "stop":  # the whole process
        os.kill(os.getpid(), 19)
    return how


if __name__ == "__main__":
    if len(sys.argv) > 1:
        if Path(sys.argv[1]).exists():
            sys.exit("started twice")
        Path(sys.argv[1]).touch()
    server.run()
