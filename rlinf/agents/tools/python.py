"""``tool_type: python``: programs in the sandbox."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from rlinf.agents.threads import call_in_thread
from rlinf.agents.tools.base import Tool, ToolResult, ToolSchema, make_schema
from rlinf.config.schema.agent import PythonToolConfig
from rlinf.errors import AgentError, RewardError
from rlinf.utils.sandbox import Outcome, Sandbox, SandboxLimits


class PythonTool(Tool):
    """Runs each program in a fresh sandbox: without network, files or other processes, and within limits.

    Args:
        name: See ``Tool``.
        cfg: See ``Tool``.

    Raises:
        AgentError: Programs cannot be isolated on this machine.
    """

    cfg: PythonToolConfig

    def __init__(self, name: str, cfg: PythonToolConfig) -> None:
        super().__init__(name, cfg)
        limits = SandboxLimits(
            timeout_seconds=cfg.cpu_seconds,
            wall_seconds=cfg.timeout_seconds,
            memory_bytes=cfg.memory_bytes,
            output_bytes=cfg.max_output_bytes,
        )
        self._running = asyncio.Semaphore(cfg.max_programs)
        try:
            self._sandbox = Sandbox(limits)
        except RewardError as error:
            raise AgentError(f"agent.tools.{name} (tool_type=python): {error}") from error

    @property
    def schema(self) -> ToolSchema:
        """See ``Tool``."""
        return make_schema(
            self.name,
            "Runs a Python program and returns what it prints.",
            code=("string", "The program; what is not printed is lost."),
        )

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """See ``Tool``."""
        try:
            outcome = await call_in_thread(self._sandbox.run, {"main.py": arguments["code"]})
        except RewardError as error:
            raise AgentError(f"agent.tools.{self.name} (tool_type=python): {error}") from error
        return _result(outcome)

    def turn(self) -> contextlib.AbstractAsyncContextManager[Any]:
        """See ``Tool``: one of ``max_programs``."""
        return self._running

    def close(self) -> None:
        """See ``Tool``."""
        self._sandbox.close()


def _result(outcome: Outcome) -> ToolResult:
    output = outcome.output.decode("utf-8", "replace")
    if outcome.killed_for is not None:
        return ToolResult(f"{output}\nThe program was ended: it exceeded its limit of {outcome.killed_for}.", True)
    if outcome.exit_code:
        return ToolResult(f"{output}\n{outcome.errors.decode('utf-8', 'replace')}".strip(), True)
    return ToolResult(output)
