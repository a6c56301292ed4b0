"""An episode that is served to clients of a test."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from rlinf.agents.episode_engine import EpisodeEngine, EpisodeLimits
from rlinf.agents.server.agent_server import AgentServer
from rlinf.agents.server.program_session import Session
from rlinf.agents.template import ChatTemplate
from rlinf.data.messages.generation import Completion, GenerationRequest, SamplingParams
from tests.unit.agents.conversations import QWEN3, ScriptedEngine, make_prompt, make_tokenizer

ADD: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    },
}
CALL = '<tool_call>\n{"name": "add", "arguments": {"b":2,  "a": 1}}\n</tool_call>'
USER = {"role": "user", "content": "Question?"}


class GatedEngine(ScriptedEngine):
    """Completes when the test lets it.

    Args:
        tokenizer: See ``ScriptedEngine``.
        lines: See ``ScriptedEngine``.
    """

    def __init__(self, tokenizer: Any, lines: Sequence[Any]) -> None:
        super().__init__(tokenizer, lines)
        self.gate = asyncio.Event()

    async def generate(self, request: GenerationRequest) -> Completion:
        """See ``ScriptedEngine``."""
        completion = await super().generate(request)
        await self.gate.wait()
        return completion


@dataclass
class Served:
    """An episode and how a client reaches it."""

    server: AgentServer
    session: Session
    engine: EpisodeEngine
    client: ScriptedEngine
    http: aiohttp.ClientSession

    async def post(self, path: str, body: Any, *, retry: int = 0, key: str | None = None) -> tuple[int, Any]:
        """Send a request; return status and body."""
        headers = {"Authorization": f"Bearer {key or self.session.key}", "x-stainless-retry-count": str(retry)}
        async with self.http.post(f"{self.server.base_url}{path}", json=body, headers=headers) as response:
            is_json = response.content_type == "application/json"
            return response.status, await (response.json() if is_json else response.text())

    async def chat(self, messages: Sequence[Any], **keys: Any) -> dict[str, Any]:
        """Return the message of a chat completion."""
        status, found = await self.post("/chat/completions", {"model": "m", "messages": list(messages), **keys})
        assert status == 200, found
        message: dict[str, Any] = found["choices"][0]["message"]
        return message


@contextlib.asynccontextmanager
async def serve(
    lines: Sequence[Any],
    *,
    template: str = QWEN3,
    engine: type[ScriptedEngine] = ScriptedEngine,
    max_turns: int = 16,
    max_context_tokens: int = 9999,
) -> AsyncIterator[Served]:
    """Serve an episode whose completions are ``lines``; open a client of it."""
    tokenizer = make_tokenizer(template)
    client, renderer = engine(tokenizer, lines), ChatTemplate(tokenizer)
    episode = EpisodeEngine(
        make_prompt(tokenizer),
        client,
        params=SamplingParams(max_new_tokens=200),
        limits=EpisodeLimits(max_turns=max_turns, max_context_tokens=max_context_tokens),
        seed=0,
        template=renderer,
    )
    server = AgentServer(renderer)
    await server.start()
    try:
        async with aiohttp.ClientSession() as http, server.open(episode) as session:
            yield Served(server, session, episode, client, http)
    finally:
        await server.close()
