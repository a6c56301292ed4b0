"""Calls of tools: what is wrong with one is text for the model, and no call holds up or ends anything else."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

from rlinf.agents.chat import parse_reply
from rlinf.agents.tools.base import Tool, ToolResult, ToolSchema, ToolSession, make_schema
from rlinf.agents.tools.toolbox import ToolBox
from rlinf.config.registries import tools
from rlinf.config.schema.agent import CalculatorToolConfig, FunctionToolConfig, ToolConfig
from rlinf.data.messages.responses import Prompt
from rlinf.errors import AgentError, RegistryError
from tests.unit.agents.conversations import QWEN2_5, make_tokenizer

TOKENIZER = make_tokenizer(QWEN2_5)
PROMPT = Prompt(index=0, token_ids=(1,), text="x", metadata={"start": 40})
FUNCTIONS = "tests.unit.agents.agent_functions"


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def run(cfgs: Mapping[str, ToolConfig], *texts: str, counts: dict[str, float] | None = None) -> list[Mapping[str, Any]]:
    """Return the messages that answer the calls in texts."""
    box = ToolBox(cfgs, TOKENIZER)
    counted: defaultdict[str, float] = defaultdict(float)

    async def play() -> Sequence[Mapping[str, Any]]:
        async with box.open(PROMPT, counted) as session:
            return await session.run([each for text in texts for each in parse_reply(text).tool_calls])

    try:
        return list(asyncio.run(play()))
    finally:
        box.close()
        if counts is not None:
            counts.update(counted)


def behaving(**keys: Any) -> dict[str, ToolConfig]:
    functions = {"behave": f"{FUNCTIONS}:behave", "later": f"{FUNCTIONS}:behave_later"}
    return {name: FunctionToolConfig(tool_type="function", function=path, **keys) for name, path in functions.items()}


CALCULATOR = {"calculator": CalculatorToolConfig(tool_type="calculator")}


def test_results_come_in_the_order_of_the_calls() -> None:
    counts: dict[str, float] = {}
    text = call("calculator", expression="6*7") + call("calculator", expression="1/0") + call("calculator")
    messages = run(CALCULATOR, text, counts=counts)
    assert [message["content"] for message in messages] == [
        "42",
        "Error: ZeroDivisionError: division by zero",
        "Error: 'expression' is a required property.",
    ]
    assert [(message["role"], message["name"], message["tool_call_id"]) for message in messages[:2]] == [
        ("tool", "calculator", "call_0_0"),
        ("tool", "calculator", "call_0_1"),
    ]
    assert counts.pop("tool/calculator_seconds") > 0
    assert counts == {"tool/calculator_calls": 2, "tool/calculator_errors": 1, "tool/invalid_calls": 1}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (call("calculater", expression="1"), "Error: there is no tool 'calculater'. Tools: calculator."),
        (call("calculator", expression=3), "Error: expression: 3 is not of type 'string'."),
        (call("calculator", expression="1", to="x"), "Error: unknown argument 'to'; arguments: expression."),
        ("<tool_call>{</tool_call>", "Error: The call is not valid JSON: "),
    ],
)
def test_a_call_that_does_not_fit_is_answered(text: str, error: str) -> None:
    (message,) = run(CALCULATOR, text)
    assert message["content"].startswith(error)


def test_exceptions_and_exits_are_text() -> None:
    texts = [call("behave", how="raise"), call("behave", how="exit"), call("later", how="exit")]
    assert [message["content"] for message in run(behaving(), *texts)] == [
        "Error: ValueError: of my own",
        "Error: RuntimeError: SystemExit: 3",
        "Error: RuntimeError: SystemExit: 3",
    ]


def test_what_a_tool_lacks_fails_the_episode() -> None:
    with pytest.raises(AgentError, match="the service is away"):
        run(behaving(), call("behave", how="service"))


def test_a_tool_that_blocks_can_be_called_again() -> None:
    texts = [call("later", how="block"), *[call("later", how="well")] * 12]
    messages = run(behaving(timeout_seconds=0.2), *texts)
    assert messages[0]["content"].endswith("did not return within 0.2 s.")
    assert messages[-1]["content"] == "well"


@pytest.mark.parametrize("text", [call("behave", how="sleep"), call("later", how="stay"), call("later", how="block")])
def test_a_call_that_takes_too_long_is_left(text: str) -> None:
    counts: dict[str, float] = {}
    begin = time.monotonic()
    (message, after) = run(behaving(timeout_seconds=0.1), text, call("behave", how="well"), counts=counts)
    assert time.monotonic() - begin < 30
    assert message["content"].endswith("did not return within 0.1 s.")
    assert after["content"] == "well"
    assert sum(value for name, value in counts.items() if name.endswith("_timeouts")) == 1


class QueuedTool(Tool):
    """Its calls take no time, and wait for their turn longer than a call may take."""

    @property
    def schema(self) -> ToolSchema:
        return make_schema(self.name, "Waits.")

    has_turn = False

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        await asyncio.sleep(3 * self.cfg.timeout_seconds)
        self.has_turn = True
        yield
        self.has_turn = False

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        await asyncio.sleep(0)
        return ToolResult("done" if self.has_turn else "not its turn")


def test_waiting_for_its_turn_is_not_part_of_a_calls_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "_entries", dict(tools._entries))
    tools.register("queued", QueuedTool, config=ToolConfig)
    counts: dict[str, float] = {}
    (message,) = run({"queued": ToolConfig(tool_type="queued", timeout_seconds=0.2)}, call("queued"), counts=counts)
    assert message["content"] == "done"
    assert "tool/queued_timeouts" not in counts
    assert counts["tool/queued_seconds"] < 0.2


@pytest.mark.parametrize(("most", "expected"), [(4, "ab\n[...]\nyz"), (5, "abc\n[...]\nyz"), (26, None)])
def test_of_a_long_result_head_and_tail_are_kept(most: int, expected: str | None) -> None:
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    (message,) = run(behaving(max_result_tokens=most), call("behave", how=alphabet))
    assert message["content"] == (expected or alphabet)


def test_a_result_of_100_megabytes_is_shortened() -> None:
    (message,) = run(behaving(max_result_tokens=6), call("behave", how="write"))
    assert message["content"] == "xxx\n[...]\nxxx"


class Counter(Tool):
    """Counts its calls within an episode, from the row's number on."""

    closed = 0

    @property
    def schema(self) -> ToolSchema:
        return make_schema(self.name, "Counts.")

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        raise NotImplementedError

    def open(self, data: Prompt) -> ToolSession:
        return CounterSession(self, data.metadata["start"])


class CounterSession(ToolSession):
    def __init__(self, tool: Tool, start: int) -> None:
        super().__init__(tool)
        self.count = start

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        self.count += 1
        return ToolResult(str(self.count))

    async def close(self) -> None:
        Counter.closed += 1


def test_a_tool_from_outside_holds_state_within_an_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "_entries", dict(tools._entries))
    tools.register("counting", Counter, config=ToolConfig)
    cfgs = {"count": ToolConfig(tool_type="counting")}
    for _ in range(2):
        assert [message["content"] for message in run(cfgs, call("count") * 2)] == ["41", "42"]
    assert Counter.closed == 2


def test_sessions_are_closed_when_an_episode_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "_entries", dict(tools._entries))
    monkeypatch.setattr(Counter, "closed", 0)
    tools.register("counting", Counter, config=ToolConfig)
    with pytest.raises(AgentError):
        run(behaving() | {"count": ToolConfig(tool_type="counting")}, call("behave", how="service"))
    assert Counter.closed == 1


def test_an_unknown_tool_is_named() -> None:
    with pytest.raises(RegistryError, match="Unknown tool 'calculater'. Did you mean 'calculator'"):
        ToolBox({"x": ToolConfig(tool_type="calculater")}, TOKENIZER)
