"""Guests that listen on this machine as they would on another one."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlinf.envs import guests

KEY = b"0123456789abcdef" * 2


def write_key(folder: Path, key: bytes = KEY) -> str:
    """Write a key as a recipe names it."""
    file = folder / "guest.key"
    file.write_bytes(key + b"\n")
    file.chmod(0o600)
    return str(file)


@contextmanager
def listening(folder: Path, adapter: str = "guest_simulator", *, log: Path | None = None) -> Iterator[tuple[str, int]]:
    """Start the program that waits for hosts; yields host and port."""
    said = log or folder / "listener.log"
    command = [sys.executable, str(Path(guests.__file__).parent), adapter, "--listen", "127.0.0.1:0"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    with (
        said.open("w") as stream,
        subprocess.Popen([*command, "--key-file", write_key(folder)], env=environment, stderr=stream) as program,
    ):
        try:
            while not (port := re.search(r"listen on port (\d+)", said.read_text())):
                assert program.poll() is None, said.read_text()
            yield "127.0.0.1", int(port[1])
        finally:
            program.terminate()
