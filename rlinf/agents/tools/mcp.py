"""``tool_type: mcp``: the tools of a server of the Model Context Protocol."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from rlinf.agents.tools.base import Tool, ToolResult, ToolSchema
from rlinf.agents.tools.mcp_connection import McpConnection
from rlinf.config.schema.agent import McpToolConfig
from rlinf.errors import AgentError


class McpTool(Tool):
    """A server, in a process of its own; the model calls its tools by their own names.

    Args:
        name: See ``Tool``.
        cfg: See ``Tool``.

    Raises:
        AgentError: The server cannot be started, or does not have a tool of ``tools``.
    """

    cfg: McpToolConfig

    def __init__(self, name: str, cfg: McpToolConfig) -> None:
        super().__init__(name, cfg)
        key = f"agent.tools.{name}"
        self._connection = McpConnection(key, cfg)
        known = {each.name: each for each in self._connection.tools}
        unknown = [each for each in cfg.tools if each not in known]
        if unknown:
            self.close()
            raise AgentError(f"{key}.tools: the server has no {', '.join(unknown)}; it has {', '.join(known)}.")
        self._members = {each: McpServerTool(known[each], cfg, self._connection) for each in cfg.tools or known}

    @property
    def schema(self) -> ToolSchema:
        """Not used: the server's tools have schemas."""
        raise NotImplementedError

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Not used: the server's tools are called."""
        raise NotImplementedError

    def members(self) -> Mapping[str, Tool]:
        """See ``Tool``: those of the server."""
        return self._members

    def close(self) -> None:
        """See ``Tool``."""
        self._connection.close()


class McpServerTool(Tool):
    """One tool of a server.

    Args:
        described: As the server lists it.
        cfg: See ``Tool``.
        connection: To the server.
    """

    def __init__(self, described: Any, cfg: McpToolConfig, connection: McpConnection) -> None:
        super().__init__(described.name, cfg)
        self._connection = connection
        parameters = {key: value for key, value in described.input_schema.items() if key != "title"}
        function = {"name": self.name, "description": described.description or "", "parameters": parameters}
        self._schema = {"type": "function", "function": function}

    @property
    def schema(self) -> ToolSchema:
        """See ``Tool``."""
        return self._schema

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """See ``Tool``."""
        return await self._connection.call(self.name, arguments)

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """See ``Tool``: a server that must be started again first."""
        await self._connection.wait_ready()
        yield
