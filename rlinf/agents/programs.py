"""Runs programs, each in a process group of its own that ends with its call, or with this process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlinf.errors import AgentError

_LAUNCHER = Path(__file__).with_name("program_launcher.py")
_OUTPUT_BYTES = 1 << 16
"""Last bytes that are kept of what a program writes."""
_POLL_SECONDS = 0.02
_END_SECONDS = 2.0
"""For the pipes of a program that has ended to close; children that left its process group may hold them."""


async def run_program(command: Sequence[str], *, stdin: bytes, env: Mapping[str, str]) -> str:
    """Run a program to its end; cancelling the call ends it, with all processes of its group.

    Args:
        command: The program and its arguments.
        stdin: What it reads.
        env: Environment variables in addition to those of this process.

    Returns:
        The last of what it wrote to its standard output.

    Raises:
        AgentError: It cannot be started, or its exit code is not 0.
    """
    read_end, write_end = os.pipe()  # closed by the kernel when this process dies
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", str(_LAUNCHER), str(read_end), *command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            pass_fds=(read_end,),
            start_new_session=True,
            env={**os.environ, **env},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        tails = [asyncio.ensure_future(_read_tail(pipe)) for pipe in (process.stdout, process.stderr)]
        try:
            with contextlib.suppress(ConnectionError):  # a program need not read
                process.stdin.write(stdin)
                await process.stdin.drain()
            process.stdin.close()
            await _wait(process)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await _wait(process)
            await asyncio.wait(tails, timeout=_END_SECONDS)
            for tail in tails:
                tail.cancel()
    finally:
        os.close(write_end)
        os.close(read_end)
    output, errors = (_text(tail) for tail in tails)
    if process.returncode != 0:
        raise AgentError(
            f"{' '.join(command)} ended with exit code {process.returncode}. Last it wrote: "
            f"{(errors or output).strip()[-2000:]!r}. Run it by hand to see why."
        )
    return output


async def _wait(process: asyncio.subprocess.Process) -> None:
    # Not Process.wait, which also waits for the pipes in some versions of Python: a child may hold them.
    while process.returncode is None:
        await asyncio.sleep(_POLL_SECONDS)


async def _read_tail(pipe: asyncio.StreamReader) -> bytearray:
    tail = bytearray()
    while part := await pipe.read(_OUTPUT_BYTES):
        tail += part
        del tail[:-_OUTPUT_BYTES]
    return tail


def _text(tail: asyncio.Task[bytearray]) -> str:
    return tail.result().decode("utf-8", "replace") if tail.done() and not tail.cancelled() else ""
