"""What clients are answered: keys, errors, events, signs of life, and rewards."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from rlinf.agents.server import agent_server
from rlinf.data.messages.generation import Completion, GenerationRequest
from rlinf.errors import EngineError
from tests.unit.agents.conversations import ALTERNATING, ScriptedEngine
from tests.unit.agents.server.served_episode import USER, GatedEngine, serve

CHAT = {"model": "m", "messages": [USER]}


def test_a_key_is_an_episode() -> None:
    async def check() -> None:
        async with serve(["Yes."]) as served:
            assert len(served.session.key) >= 32
            for key in ("sk-unknown", served.session.key[:-1]):
                status, found = await served.post("/chat/completions", CHAT, key=key)
                assert (status, found["error"]["code"]) == (401, "invalid_request")
            headers = {"Authorization": f"Basic {served.session.key}"}
            async with served.http.get(f"{served.server.base_url}/models", headers=headers) as response:
                assert response.status == 401
            async with served.server.open(served.engine) as other:
                assert other.key != served.session.key
            status, _ = await served.post("/chat/completions", CHAT, key=other.key)
            assert status == 401, "its episode has ended"
            assert not served.client.requests

    asyncio.run(check())


def test_models_and_health() -> None:
    async def check() -> None:
        async with serve([]) as served:
            headers = {"Authorization": f"Bearer {served.session.key}"}
            async with served.http.get(f"{served.server.base_url}/models", headers=headers) as response:
                assert [model["id"] for model in (await response.json())["data"]] == ["policy"]
            async with served.http.get(served.server.base_url.replace("/v1", "/health")) as response:
                assert response.status == 200

    asyncio.run(check())


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"n": 2}, "n: received 2; a request has one completion here"),
        ({"messages": []}, "expected a list of messages, one at least"),
        ({"messages": "Hi"}, "expected a list of messages"),
        ({"messages": [{"content": "Hi"}]}, "without a role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "content of the type 'image_url'"),
        ({"max_tokens": 0}, "max_tokens: received 0; expected a positive number"),
        ({"stop": ["", "x"]}, "stop: received"),
        ({"stop": 3}, "malformed: TypeError"),
        ({"tools": 3}, "malformed: TypeError"),
    ],
)
def test_a_request_that_cannot_be_served_says_why(keys: dict[str, Any], message: str) -> None:
    async def check() -> None:
        async with serve([]) as served:
            status, found = await served.post("/chat/completions", {**CHAT, **keys})
            assert (status, found["error"]["code"]) == (400, "invalid_request")
            assert message in found["error"]["message"]
            assert not served.session.failure.done()

    asyncio.run(check())


def test_a_body_that_is_no_json_object_says_so() -> None:
    async def check() -> None:
        async with serve([]) as served:
            for body, message in ((b"{", "not valid JSON"), (b"[1]", "a list; expected a JSON object")):
                headers = {"Authorization": f"Bearer {served.session.key}"}
                url = f"{served.server.base_url}/chat/completions"
                async with served.http.post(url, data=body, headers=headers) as response:
                    assert response.status == 400
                    assert message in (await response.json())["error"]["message"]
                    assert response.headers["x-should-retry"] == "false"

    asyncio.run(check())


def test_limits_are_errors_that_no_client_repeats() -> None:
    async def check() -> None:
        async with serve(["One.", "Two."], max_turns=1) as served:
            await served.chat([USER])
            status, found = await served.post("/chat/completions", CHAT)
            assert (status, found["error"]["code"]) == (400, "turn_limit")
            assert served.session.limit is not None
        async with serve(["One."], max_context_tokens=28) as served:
            status, found = await served.post("/chat/completions", CHAT)
            assert (status, found["error"]["code"]) == (400, "context_length_exceeded")

    asyncio.run(check())


def test_a_conversation_that_the_template_refuses_is_the_programs_error() -> None:
    async def check() -> None:
        async with serve([], template=ALTERNATING) as served:
            body = {"model": "m", "messages": [USER, {"role": "tool", "tool_call_id": "1", "content": "x"}]}
            status, found = await served.post("/chat/completions", body)
            assert (status, found["error"]["code"]) == (400, "agent_error")
            assert "Only user and assistant!" in found["error"]["message"]
            assert not served.session.failure.done()

    asyncio.run(check())


class FailingEngine(ScriptedEngine):
    """Has died."""

    async def generate(self, request: GenerationRequest) -> Completion:
        """See ``ScriptedEngine``."""
        raise EngineError("it has died")


def test_a_dead_engine_ends_the_episode() -> None:
    async def check() -> None:
        async with serve([], engine=FailingEngine) as served:
            status, found = await served.post("/chat/completions", CHAT)
            assert (status, found["error"]["code"]) == (503, "engine_failed")
            with pytest.raises(EngineError, match="it has died"):
                served.session.failure.result()

    asyncio.run(check())


@pytest.mark.parametrize("is_streamed", [False, True])
def test_clients_that_wait_see_that_the_server_lives(monkeypatch: pytest.MonkeyPatch, is_streamed: bool) -> None:
    monkeypatch.setattr(agent_server, "_PATIENCE_SECONDS", 0.05)

    async def check() -> None:
        async with serve(["Yes."], engine=GatedEngine) as served:
            assert isinstance(served.client, GatedEngine)
            headers = {"Authorization": f"Bearer {served.session.key}"}
            url = f"{served.server.base_url}/chat/completions"
            async with served.http.post(url, json={**CHAT, "stream": is_streamed}, headers=headers) as response:
                sign = b": wait\n\n" if is_streamed else b" "
                assert await response.content.readexactly(len(sign)) == sign
                served.client.gate.set()
                rest = await response.read()
            if is_streamed:
                assert rest.endswith(b"data: [DONE]\n\n")
            else:
                assert json.loads(rest)["choices"][0]["message"]["content"] == "Yes."

    asyncio.run(check())


def test_a_failure_behind_a_sign_of_life_hangs_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_server, "_PATIENCE_SECONDS", 0.05)

    class Late(GatedEngine):
        async def generate(self, request: GenerationRequest) -> Completion:
            await self.gate.wait()
            raise EngineError("too late")

    async def check() -> None:
        async with serve([], engine=Late) as served:
            assert isinstance(served.client, GatedEngine)
            headers = {"Authorization": f"Bearer {served.session.key}"}
            url = f"{served.server.base_url}/chat/completions"
            async with served.http.post(url, json=CHAT, headers=headers) as response:
                await response.content.readexactly(1)
                served.client.gate.set()
                with pytest.raises(aiohttp.ClientPayloadError):
                    await response.read()
            status, _ = await served.post("/chat/completions", CHAT, retry=1)
            assert status == 503

    asyncio.run(check())


def test_a_program_sends_its_own_judgement() -> None:
    async def check() -> None:
        async with serve([]) as served:
            assert served.session.outcome is None
            assert await served.post("/episode/reward", {"value": 1}) == (200, {"value": 1.0})
            for value in (None, "1", True):
                status, _ = await served.post("/episode/reward", {"value": value})
                assert status == 400
            assert served.session.outcome == 1.0

    asyncio.run(check())


@pytest.mark.timeout(30)
def test_a_client_that_has_sent_half_a_request_does_not_keep_the_server() -> None:
    async def check() -> None:
        async with serve([]) as served:
            port = served.server.base_url.rpartition(":")[2].partition("/")[0]
            reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
            key = f"Authorization: Bearer {served.session.key}\r\n".encode()
            writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\n" + key + b"Content-Length: 9\r\n\r\n{")
            await writer.drain()
            status, _ = await served.post("/chat/completions", {**CHAT, "n": 2})
            assert status == 400, "the server has met the connection meanwhile"
        await reader.read()
        writer.close()

    asyncio.run(check())
