"""A connection to a server of the Model Context Protocol, which is started again after its death."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from rlinf.agents.tools.base import ToolResult
from rlinf.config.schema.agent import McpToolConfig
from rlinf.errors import AgentError
from rlinf.utils.optional import require

_ANSWER_SECONDS = 5.0
"""For a server to list its tools, where it may hang."""
_END_SECONDS = 10.0
"""For a server's process to end when the connection is closed."""


class McpConnection:
    """Lists and calls a server's tools, from a thread that has an event loop of its own.

    One process serves all episodes of a worker; calls run at the same time as far as the server lets them. Before the
    next call after one that was cancelled, as one that took too long is, the server lists its tools: one that does not
    is ended, and started again.

    Args:
        key: The recipe's, for messages.
        cfg: Where the server is: a program that speaks over its standard input and output, or an address.

    Raises:
        MissingPackageError: The package ``mcp`` is not installed.
        AgentError: The server cannot be started.
    """

    def __init__(self, key: str, cfg: McpToolConfig) -> None:
        self._mcp: Any = require("mcp", needed_by=f"{key} (tool_type=mcp)")
        self._key = key
        self._cfg = cfg
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="mcp")
        self._thread.start()
        self._lock = asyncio.Lock()
        self._client: Any = None
        self._living: asyncio.Task[None] | None = None
        self._is_suspect = False
        self.tools: Sequence[Any] = ()
        try:
            asyncio.run_coroutine_threadsafe(self._connected(), self._loop).result()
        except BaseException:
            self.close()
            raise

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool.

        Args:
            tool: As the server names it.
            arguments: By name.

        Raises:
            AgentError: The server has died, or cannot be started again.
        """
        try:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._call(tool, arguments), self._loop))
        except asyncio.CancelledError:
            self._is_suspect = True
            raise

    async def wait_ready(self) -> None:
        """Wait until the server answers; it is started again if it has died or hangs.

        Raises:
            AgentError: It cannot be started.
        """
        await asyncio.sleep(0)  # a call that has just been left says so first
        ready = asyncio.run_coroutine_threadsafe(self._connected(), self._loop)
        await asyncio.shield(asyncio.wrap_future(ready))

    def close(self) -> None:
        """End the server."""
        if not self._loop.is_running():
            return
        with contextlib.suppress(concurrent.futures.TimeoutError):
            asyncio.run_coroutine_threadsafe(self._disconnect(), self._loop).result(_END_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_END_SECONDS)

    async def _call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        # A call that is cancelled leaves the server's start to the next.
        client = await asyncio.shield(asyncio.ensure_future(self._connected()))
        try:
            result = await client.call_tool(tool, dict(arguments))
        except self._mcp.MCPError as error:
            if self._client is client and not await self._answers(client):
                raise AgentError(
                    f"{self._key} (tool_type=mcp): the server died in a call of {tool}: {error}. See what it "
                    "wrote to its standard error."
                ) from error
            return ToolResult(f"Error: {error.message}", True)
        return ToolResult("\n".join(map(_text, result.content)), bool(result.is_error))

    async def _connected(self) -> Any:
        """Return a client whose server answers."""
        async with self._lock:
            if self._is_suspect and self._client is not None:
                await self._answers(self._client)
            self._is_suspect = False
            if self._client is None:
                await self._connect()
            return self._client

    async def _answers(self, client: Any) -> bool:
        """Return whether the server lists its tools; one that does not is left."""
        try:
            await asyncio.wait_for(client.list_tools(cache_mode="bypass"), _ANSWER_SECONDS)
        except (self._mcp.MCPError, asyncio.TimeoutError):
            await self._disconnect()
            return False
        return True

    async def _connect(self) -> None:
        ready: asyncio.Future[Any] = self._loop.create_future()
        self._living = asyncio.ensure_future(self._live(ready))
        try:
            self._client = await asyncio.wait_for(ready, self._cfg.start_seconds)
        except Exception as error:  # of a program that the user names
            await self._disconnect()
            reason = str(error) or type(error).__name__
            raise AgentError(
                f"{self._key} (tool_type=mcp): {self._cfg.url or ' '.join(self._cfg.command)} did not "
                f"start within {self._cfg.start_seconds:g} s: {reason}. Run it by hand to see why."
            ) from error

    async def _live(self, ready: asyncio.Future[Any]) -> None:
        """Hold a client open: the task that opened it must also close it."""
        try:
            async with self._mcp.Client(self._target()) as client:
                self.tools = (await client.list_tools()).tools
                ready.set_result(client)
                await asyncio.Event().wait()
        except Exception as error:  # noqa: BLE001 - of the server; the one that waits raises it
            if not ready.done():
                ready.set_exception(error)

    def _target(self) -> Any:
        if self._cfg.url is not None:
            return self._cfg.url
        first, *others = self._cfg.command
        program = sys.executable if first == "python" else first
        return self._mcp.StdioServerParameters(command=program, args=others, env=dict(os.environ))

    async def _disconnect(self) -> None:
        self._client = None
        if self._living is not None:
            self._living.cancel()
            await asyncio.wait({self._living}, timeout=_END_SECONDS)


def _text(content: Any) -> str:
    text = getattr(content, "text", None)
    return str(text) if text is not None else f"[{content.type}]"
