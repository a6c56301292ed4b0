"""``workflow: program``: an agent that is a program of its own, on any package that speaks the OpenAI protocol."""

from __future__ import annotations

import asyncio
import json
import math
import os
import sys
from collections.abc import Mapping
from typing import Any, ClassVar

from rlinf.agents.episode_engine import EpisodeEngine
from rlinf.agents.programs import run_program
from rlinf.agents.server.agent_server import AgentServer
from rlinf.agents.server.program_session import Session
from rlinf.agents.threads import UserFunction
from rlinf.agents.workflow import RolloutWorkflow, WorkflowContext
from rlinf.config.schema.agent import ProgramConfig
from rlinf.data.messages.responses import Prompt
from rlinf.errors import AgentError
from rlinf.utils.user_functions import import_function


class ProgramWorkflow(RolloutWorkflow):
    """Starts the program, serves its requests, and waits for its end.

    Args:
        cfg: The ``agent`` section.
        context: See ``RolloutWorkflow``.

    Raises:
        ConfigError: There is no such function.
    """

    cfg: ProgramConfig
    roles: ClassVar[tuple[str, ...]] = ("user",)

    def __init__(self, cfg: ProgramConfig, context: WorkflowContext) -> None:
        super().__init__(cfg, context)
        self._function: UserFunction | None = None
        if cfg.function is not None:
            self._function = UserFunction(import_function(cfg.function, "agent.function"))
        self._server: asyncio.Task[AgentServer] | None = None

    async def close(self) -> None:
        """Stop the server, which also ends with the process."""
        if self._server is not None:
            await (await self._server).close()

    async def arun_episode(self, engine: EpisodeEngine, data: Prompt) -> float | None:
        """See ``RolloutWorkflow``."""
        if self._server is None:
            self._server = asyncio.ensure_future(self._start_server())
        server = await asyncio.shield(self._server)
        async with server.open(engine) as session:
            outcome = await self._run(session, server.base_url, data)
            if not session.messages:
                raise AgentError("The program made no request. Let it take its address from OPENAI_BASE_URL.")
            return outcome if session.outcome is None else session.outcome

    async def _start_server(self) -> AgentServer:
        assert self.context.template is not None
        server = AgentServer(self.context.template)
        await server.start()
        return server

    async def _run(self, session: Session, base_url: str, data: Prompt) -> float | None:
        """Run the program; end it when an engine has failed."""
        program = asyncio.ensure_future(self._program(session, base_url, data))
        try:
            waited: set[asyncio.Future[Any]] = {program, session.failure}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if session.failure.done():
                session.failure.result()
            return program.result()
        except AgentError as error:
            if session.limit is not None:  # most programs end by the exception of the client
                raise session.limit from error
            raise
        finally:
            program.cancel()
            await asyncio.wait({program})

    async def _program(self, session: Session, base_url: str, data: Prompt) -> float | None:
        if self._function is None:
            env = {
                "OPENAI_BASE_URL": base_url,
                "OPENAI_API_KEY": session.key,
                "ANTHROPIC_BASE_URL": base_url.removesuffix("/v1"),
                "ANTHROPIC_API_KEY": session.key,
                "NO_PROXY": _without_proxy(),
            }
            first, *others = self.cfg.command
            command = [sys.executable if first == "python" else first, *others]
            output = await run_program(command, stdin=json.dumps(row_of(data), default=str).encode(), env=env)
            return _printed_reward(output)
        try:
            value = await self._function(row_of(data), base_url=base_url, api_key=session.key)
        except Exception as error:  # the boundary around a user's function
            raise AgentError(f"agent.function: {self.cfg.function} raised {type(error).__name__}: {error}.") from error
        if value is None or (isinstance(value, int | float) and math.isfinite(value)):
            return None if value is None else float(value)
        raise AgentError(f"agent.function: {self.cfg.function} returned {value!r}; expected a finite number or None.")


def row_of(prompt: Prompt) -> dict[str, Any]:
    """Return a row as programs read it."""
    return {
        "index": prompt.index,
        "prompt": prompt.text,
        "messages": list(prompt.messages),
        "reference": prompt.reference,
        "metadata": dict(prompt.metadata),
    }


def _printed_reward(output: str) -> float | None:
    """Return the reward that the last line of a program's output gives as ``{"reward": ...}``; None without one."""
    lines = output.strip().splitlines()
    try:
        result = json.loads(lines[-1]) if lines else None
    except (ValueError, RecursionError):
        return None
    value = result.get("reward") if isinstance(result, Mapping) else None
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return None
    return float(value)


def _without_proxy() -> str:
    """Return ``NO_PROXY`` with this machine added: the server listens there."""
    known = os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""
    return ",".join([*filter(None, [known]), "127.0.0.1", "localhost"])
