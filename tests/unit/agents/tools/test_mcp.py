"""Tools of a real server of the Model Context Protocol, which runs in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlinf.agents.chat import ToolCall
from rlinf.agents.tools import mcp_connection
from rlinf.agents.tools.toolbox import ToolBox
from rlinf.config.schema.agent import CalculatorToolConfig, McpToolConfig, ToolConfig
from rlinf.data.messages.responses import Prompt
from rlinf.errors import AgentError
from tests.unit.agents.conversations import QWEN2_5, make_tokenizer

pytest.importorskip("mcp")

SERVER = str(Path(__file__).with_name("mcp_server.py"))
TOKENIZER = make_tokenizer(QWEN2_5)
PROMPT = Prompt(index=0, token_ids=(1,), text="x")


def server(*arguments: str, **keys: Any) -> McpToolConfig:
    return McpToolConfig(tool_type="mcp", command=["python", SERVER, *arguments], **keys)


@contextlib.contextmanager
def opened(**entries: ToolConfig) -> Iterator[ToolBox]:
    box = ToolBox(entries, TOKENIZER)
    try:
        yield box
    finally:
        box.close()


def run(box: ToolBox, *calls: tuple[str, dict[str, Any]], counts: dict[str, float] | None = None) -> list[str]:
    """Return the texts that answer calls, one after the other."""
    counted: defaultdict[str, float] = defaultdict(float)
    written = [
        ToolCall(id=str(number), name=name, arguments=arguments, error=None, text="")
        for number, (name, arguments) in enumerate(calls)
    ]

    async def play() -> list[str]:
        async with box.open(PROMPT, counted) as tools:
            return [message["content"] for message in await tools.run(written)]

    texts = asyncio.run(play())
    if counts is not None:
        counts.update(counted)
    return texts


def is_running(pid: str) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_the_tools_of_a_server_are_called_by_their_own_names() -> None:
    with opened(demo=server(), sum=CalculatorToolConfig(tool_type="calculator")) as box:
        schemas = {schema["function"]["name"]: schema["function"] for schema in box.schemas}
        assert list(schemas) == ["add", "pid", "behave", "sum"]
        assert schemas["add"]["description"] == "Add two numbers."
        assert schemas["add"]["parameters"]["required"] == ["a", "b"]
        calls = ("add", {"a": 40, "b": 2}), ("add", {"a": "x", "b": 2}), ("behave", {"how": "raise"})
        counts: dict[str, float] = {}
        found = run(box, *calls, counts=counts)
        assert found[0] == "42"
        assert found[1].startswith("Error: a: 'x' is not of type 'integer'")
        assert "behave" in found[2], "the server's own words"
        errors = ("tool/add_errors", "tool/invalid_calls", "tool/behave_errors")
        assert [counts[name] for name in errors] == [0, 1, 1]
        first, second = run(box, ("pid", {}), ("pid", {}))
        assert first == second != str(os.getpid())
        assert is_running(first)
    assert not is_running(first)


def test_some_of_the_tools() -> None:
    with opened(demo=server(tools=["add"])) as box:
        assert [schema["function"]["name"] for schema in box.schemas] == ["add"]
    with (
        pytest.raises(AgentError, match=r"agent\.tools\.demo\.tools: the server has no sub; it has add, pid, behave"),
        opened(demo=server(tools=["sub"])),
    ):
        pass
    with (
        pytest.raises(AgentError, match=r"agent\.tools\.b: brings add, pid, behave, which another"),
        opened(a=server(), b=server()),
    ):
        pass


def test_a_server_that_died_fails_the_call_and_is_started_again() -> None:
    with opened(demo=server()) as box:
        (before,) = run(box, ("pid", {}))
        with pytest.raises(
            AgentError, match=r"agent\.tools\.demo \(tool_type=mcp\): the server died in a call of behave"
        ):
            run(box, ("behave", {"how": "exit"}))
        (after,) = run(box, ("pid", {}))
        assert after != before
        assert not is_running(before)
        os.kill(int(after), 9)  # between two calls
        while is_running(after):
            time.sleep(0.01)
        time.sleep(0.2)
        with contextlib.suppress(AgentError):
            run(box, ("pid", {}))
        assert run(box, ("add", {"a": 1, "b": 1})) == ["2"]


def test_a_call_that_takes_too_long_holds_up_no_other() -> None:
    with opened(demo=server(timeout_seconds=1.0)) as box:
        pid, late, after = run(box, ("pid", {}), ("behave", {"how": "stay"}), ("pid", {}))
        assert late == "Error: behave did not return within 1 s."
        assert after == pid


def test_a_server_that_hangs_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # Longer than a call may take: finding out that it hangs, and starting another, is not the next call's time.
    monkeypatch.setattr(mcp_connection, "_ANSWER_SECONDS", 4.0)
    with opened(demo=server(timeout_seconds=2.0)) as box:
        pid, late, after = run(box, ("pid", {}), ("behave", {"how": "stop"}), ("pid", {}))
        assert "did not return" in late
        assert after not in {"", pid}
        assert "Error" not in after
        assert not is_running(pid)


@pytest.mark.parametrize("command", [["no-such-program"], [sys.executable, "-c", "raise SystemExit('of my own')"]])
def test_a_server_that_cannot_be_started(command: list[str]) -> None:
    broken = McpToolConfig(tool_type="mcp", command=command, start_seconds=20)
    with (
        pytest.raises(AgentError, match=r"agent\.tools\.demo \(tool_type=mcp\): .* did not start within 20 s"),
        opened(demo=broken),
    ):
        pass


def test_a_server_that_cannot_be_started_again(tmp_path: Path) -> None:
    with opened(demo=server(str(tmp_path / "started"))) as box:
        with pytest.raises(AgentError, match="the server died"):
            run(box, ("behave", {"how": "exit"}))
        with pytest.raises(AgentError, match="did not start within"):
            run(box, ("pid", {}))
