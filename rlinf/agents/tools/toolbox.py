"""The tools of a recipe: their calls are checked, bounded in time and length, and counted."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import jsonschema

from rlinf.agents.chat import ToolCall
from rlinf.agents.template import Message
from rlinf.agents.tools.base import Tool, ToolResult, ToolSchema, ToolSession
from rlinf.config.schema.agent import ToolConfig, tools
from rlinf.data.messages.responses import Prompt
from rlinf.errors import AgentError, EngineError, WorkerError
from rlinf.utils.closing import close_all
from rlinf.utils.logging import get_logger

_CHARS_PER_TOKEN = 16
"""Longer results are shortened before they are encoded: few tokens have more characters."""
_log = get_logger("agents.tools")


class ToolBox:
    """The tools of ``agent.tools``; one object per process.

    Args:
        cfgs: The tools by name.
        tokenizer: Counts the tokens of results.

    Raises:
        AgentError: A tool cannot be built.
        ConfigError: A function that a tool calls does not exist.
    """

    def __init__(self, cfgs: Mapping[str, ToolConfig], tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.tools: dict[str, Tool] = {}
        self._entries: list[Tool] = []
        try:
            for name, cfg in cfgs.items():
                entry = tools.get(cfg.tool_type)(name, cfg)
                self._entries.append(entry)
                self._add(name, entry.members())
        except BaseException:
            self.close()
            raise

    def _add(self, entry: str, members: Mapping[str, Tool]) -> None:
        known = [name for name in members if name in self.tools]
        if known:
            raise AgentError(
                f"agent.tools.{entry}: brings {', '.join(known)}, which another entry has, too. Give the other entry "
                "another name, or leave tools out (agent.tools.<entry>.tools)."
            )
        self.tools |= members

    @property
    def schemas(self) -> list[ToolSchema]:
        """What the model knows of the tools."""
        return [tool.schema for tool in self.tools.values()]

    @contextlib.asynccontextmanager
    async def open(self, data: Prompt, counts: defaultdict[str, float]) -> AsyncIterator[EpisodeTools]:
        """Give an episode its own sessions of the tools, which end with it.

        Args:
            data: The row that is played.
            counts: Takes ``tool/<name>_calls``, ``_errors``, ``_timeouts`` and ``_seconds``.
        """
        sessions = {name: tool.open(data) for name, tool in self.tools.items()}
        try:
            yield EpisodeTools(self, sessions, counts)
        finally:
            for session in sessions.values():
                await session.close()

    def close(self) -> None:
        """Free what the tools hold."""
        close_all(entry.close for entry in self._entries)


class EpisodeTools:
    """The tools within one episode.

    Args:
        box: The tools.
        sessions: Those of the episode, by name.
        counts: See ``ToolBox.open``.
    """

    def __init__(self, box: ToolBox, sessions: Mapping[str, ToolSession], counts: defaultdict[str, float]) -> None:
        self._box, self._sessions, self._counts = box, sessions, counts

    async def run(self, calls: Sequence[ToolCall]) -> list[Message]:
        """Run calls, one after the other or, where their tools are made for it, at once.

        Args:
            calls: As the model wrote them.

        Returns:
            A message of the role ``tool`` for each; what is wrong with a call is the text of its message.

        Raises:
            AgentError: What a tool needs is not there.
            EngineError: An engine that a tool samples with has failed.
            WorkerError: Its process has died.
        """
        if not all(call.name in self._sessions and self._sessions[call.name].tool.runs_at_once for call in calls):
            return [await self._message(call) for call in calls]
        tasks = [asyncio.ensure_future(self._message(call)) for call in calls]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _message(self, call: ToolCall) -> Message:
        result = await self._result(call)
        return {"role": "tool", "name": call.name or "unknown", "tool_call_id": call.id, "content": result.text}

    async def _result(self, call: ToolCall) -> ToolResult:
        session = self._sessions.get(call.name)
        if call.error is not None or session is None:
            self._counts["tool/invalid_calls"] += 1
            known = ", ".join(self._sessions)
            return ToolResult(f"Error: {call.error or f'there is no tool {call.name!r}. Tools: {known}'}.", True)
        problem = _misfit(session.tool.schema, call.arguments)
        if problem is not None:
            self._counts["tool/invalid_calls"] += 1
            return ToolResult(f"Error: {problem}.", True)
        async with session.tool.turn():
            begin = time.monotonic()
            result = await self._bounded(session, call.arguments)
        self._counts[f"tool/{call.name}_calls"] += 1
        self._counts[f"tool/{call.name}_errors"] += result.is_error
        self._counts[f"tool/{call.name}_seconds"] += time.monotonic() - begin
        return ToolResult(self._shortened(result.text, session.tool.cfg.max_result_tokens), result.is_error)

    async def _bounded(self, session: ToolSession, arguments: Mapping[str, Any]) -> ToolResult:
        name, seconds = session.tool.name, session.tool.cfg.timeout_seconds
        task = asyncio.ensure_future(session.call(arguments))
        try:
            # Not wait_for, which waits without end for a call that does not let itself be cancelled.
            done, _ = await asyncio.wait({task}, timeout=None if session.tool.ends_itself else seconds)
            if done:
                return task.result()
            self._counts[f"tool/{name}_timeouts"] += 1
            return ToolResult(f"Error: {name} did not return within {seconds:g} s.", True)
        except (AgentError, EngineError, WorkerError):
            raise
        except Exception as error:  # noqa: BLE001 - the boundary around a tool, which may be a user's code
            _log.debug("tool %s raised", name, exc_info=error)
            return ToolResult(f"Error: {type(error).__name__}: {error}", True)
        finally:
            task.cancel()

    def _shortened(self, text: str, most: int) -> str:
        """Return head and tail of a text that has more tokens than a result may have, and how much is left out."""
        head, tail = (most + 1) // 2, most // 2
        chars = _CHARS_PER_TOKEN * most
        dropped = max(len(text) - 2 * chars, 0)
        if dropped:
            text = text[:chars] + text[len(text) - chars :]
        tokenizer = self._box.tokenizer
        token_ids = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
        if len(token_ids) <= most and not dropped:
            return text
        parts = (tokenizer.decode(ids) for ids in (token_ids[:head], token_ids[len(token_ids) - tail :]))
        return "\n[...]\n".join(parts)


def _misfit(schema: ToolSchema, arguments: Mapping[str, Any]) -> str | None:
    """Return why arguments do not fit a tool's schema, in words for the model."""
    parameters = schema["function"].get("parameters", {})
    unknown = [name for name in arguments if name not in parameters.get("properties", {})]
    if unknown:
        return f"unknown argument {', '.join(map(repr, unknown))}; arguments: {', '.join(parameters['properties'])}"
    try:
        jsonschema.validate(dict(arguments), parameters)
    except jsonschema.ValidationError as error:
        path = ".".join(map(str, error.absolute_path))
        return f"{path}: {error.message}"[:300] if path else error.message[:300]
    return None
