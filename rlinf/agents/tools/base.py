"""The contract of tools."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from rlinf.config.schema.agent import ToolConfig
from rlinf.data.messages.responses import Prompt

ToolSchema: TypeAlias = "Mapping[str, Any]"
"""``{"type": "function", "function": {"name", "description", "parameters"}}``: what chat templates show the model, and
what arguments are checked against."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a call.

    Attributes:
        text: What the model reads.
        is_error: Whether the call went wrong.
    """

    text: str
    is_error: bool = False


class Tool(abc.ABC):
    """What a model may call.

    Args:
        name: Under which the model calls it.
        cfg: The entry of ``agent.tools``.

    Attributes:
        runs_at_once: Whether the calls of one turn run at the same time.
        ends_itself: Whether calls end in time by themselves, with an ``AgentError`` where the model is not to blame for
            the time. Others are left after ``timeout_seconds``, and the model reads so.
    """

    runs_at_once: ClassVar[bool] = False
    ends_itself: ClassVar[bool] = False

    def __init__(self, name: str, cfg: ToolConfig) -> None:
        self.name, self.cfg = name, cfg

    @property
    @abc.abstractmethod
    def schema(self) -> ToolSchema:
        """What the model and the check of arguments know of it."""

    @abc.abstractmethod
    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Run the tool.

        Args:
            arguments: By name; they fit the schema.

        Raises:
            AgentError: What the tool needs is not there, such as a service: the episode fails, as the model is not to
                blame.
            Exception: The call went wrong; the model reads the message.
        """

    def turn(self) -> contextlib.AbstractAsyncContextManager[Any]:
        """Return what a call waits for before it runs, outside its time; nothing, mostly."""
        return contextlib.nullcontext()

    def open(self, data: Prompt) -> ToolSession:
        """Return the tool for one episode; one with state between calls has a session of its own.

        Args:
            data: The row that is played.
        """
        del data
        return ToolSession(self)

    def members(self) -> Mapping[str, Tool]:
        """Return the tools that the entry stands for, by the name under which the model calls them: itself, mostly."""
        return {self.name: self}

    def close(self) -> None:  # noqa: B027 - most tools hold nothing
        """Free what the tool holds; called once."""


class ToolSession:
    """A tool within one episode.

    Args:
        tool: The tool.
    """

    def __init__(self, tool: Tool) -> None:
        self.tool = tool

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """See ``Tool``."""
        return await self.tool.call(arguments)

    async def close(self) -> None:
        """Free what the session holds; called once, however the episode ends."""


def make_schema(name: str, description: str, **parameters: tuple[str, str]) -> ToolSchema:
    """Return the schema of a tool all of whose parameters are required.

    Args:
        name: Of the tool.
        description: What it does.
        **parameters: JSON type and description of each.
    """
    properties = {key: {"type": kind, "description": text} for key, (kind, text) in parameters.items()}
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {"type": "object", "properties": properties, "required": list(properties)},
        },
    }
