"""Functions as tools: their schema, plain and ``async`` ones, and those that cannot be described."""

from __future__ import annotations

import asyncio

import pytest

from rlinf.agents.tools.function import FunctionTool
from rlinf.config.schema.agent import FunctionToolConfig
from rlinf.errors import AgentError, ConfigError

FUNCTIONS = "tests.unit.agents.agent_functions"


def make_tool(name: str) -> FunctionTool:
    return FunctionTool("plus", FunctionToolConfig(tool_type="function", function=f"{FUNCTIONS}:{name}"))


def test_hints_and_docstring_are_the_schema() -> None:
    schema = make_tool("add").schema["function"]
    assert (schema["name"], schema["description"]) == ("plus", "Adds two numbers.")
    assert schema["parameters"]["required"] == ["a"]
    assert schema["parameters"]["properties"]["b"] == {"type": "integer", "description": "The other."}


def test_plain_and_async_functions_are_called() -> None:
    assert asyncio.run(make_tool("add").call({"a": 1, "b": 2})).text == "3"
    assert asyncio.run(make_tool("add_later").call({"a": 1})).text == "2"


def test_what_is_no_described_function_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"agent\.tools\.plus\.function: received .*:subtract'; it cannot be imp"):
        make_tool("subtract")
    with pytest.raises(ConfigError, match="it is no function but a int"):
        make_tool("NO_FUNCTION")
    with pytest.raises(AgentError, match="undescribed cannot be described to the model: .* Give it type hints"):
        make_tool("undescribed")
