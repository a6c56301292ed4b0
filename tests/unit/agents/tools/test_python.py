"""Programs as a tool: what they print, how they fail, and that they are isolated."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rlinf.agents.tools.base import ToolResult
from rlinf.agents.tools.python import PythonTool
from rlinf.config.schema.agent import PythonToolConfig
from rlinf.errors import AgentError
from rlinf.utils.sandbox import Outcome


@pytest.fixture(scope="module")
def tool() -> Iterator[PythonTool]:
    cfg = PythonToolConfig(tool_type="python", cpu_seconds=0.5, timeout_seconds=20, max_output_bytes=1000)
    try:
        tool = PythonTool("python", cfg)
    except AgentError as error:
        pytest.skip(f"programs cannot be isolated on this machine: {error}")
    yield tool
    tool.close()


def run(tool: PythonTool, *programs: str) -> list[ToolResult]:
    async def gather() -> Any:
        return await asyncio.gather(*(tool.call({"code": program}) for program in programs))

    return list(asyncio.run(gather()))


def test_programs_print_fail_and_are_ended(tool: PythonTool) -> None:
    said, failed, endless, chatty = run(
        tool, "print(6 * 7)", "print(1)\nraise ValueError('x')", "while True: pass", "print('x' * 10**6)"
    )
    assert said == ToolResult("42\n")
    assert failed.is_error
    assert failed.text.startswith("1\n")
    assert failed.text.endswith("ValueError: x")
    assert endless == ToolResult("\nThe program was ended: it exceeded its limit of timeout.", True)
    assert chatty.is_error
    assert chatty.text.endswith("it exceeded its limit of output.")


def test_no_more_programs_run_at_once_than_may(tool: PythonTool, monkeypatch: pytest.MonkeyPatch) -> None:
    running: list[int] = []
    greatest = 0

    def run_slowly(files: dict[str, str]) -> Outcome:
        nonlocal greatest
        running.append(1)
        greatest = max(greatest, len(running))
        time.sleep(0.02)
        running.pop()
        return Outcome(exit_code=0, output=files["main.py"].encode())

    async def take_turns() -> list[ToolResult]:
        async def call(number: int) -> ToolResult:
            async with tool.turn():
                return await tool.call({"code": str(number)})

        return await asyncio.gather(*map(call, range(40)))

    monkeypatch.setattr(tool._sandbox, "run", run_slowly)
    assert [result.text for result in asyncio.run(take_turns())] == [str(number) for number in range(40)]
    assert greatest == tool.cfg.max_programs


def test_a_machine_that_cannot_isolate_programs_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlinf.utils.sandbox._INTERPRETER", "/nonexistent")
    with pytest.raises((AgentError, OSError)):
        PythonTool("python", PythonToolConfig(tool_type="python"))
