"""Programs as a tool: what they print, how they fail, and that they are isolated."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from rlinf.agents.tools.base import ToolResult
from rlinf.agents.tools.python import PythonTool
from rlinf.config.schema.agent import PythonToolConfig
from rlinf.errors import AgentError


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


def test_a_machine_that_cannot_isolate_programs_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlinf.utils.sandbox._INTERPRETER", "/nonexistent")
    with pytest.raises((AgentError, OSError)):
        PythonTool("python", PythonToolConfig(tool_type="python"))
