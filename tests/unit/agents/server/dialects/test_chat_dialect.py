"""Chat completions as the protocol has them."""

from __future__ import annotations

import asyncio
import json

import pytest

from rlinf.agents.server.dialects.chat_dialect import ChatDialect
from tests.unit.agents.server.served_episode import ADD, CALL, USER, serve


def test_a_completion_and_its_numbers() -> None:
    async def check() -> None:
        async with serve(["Yes.", ("No", "length")]) as served:
            body = {"model": "gpt", "messages": [USER]}
            _, found = await served.post("/chat/completions", body)
            assert (found["object"], found["model"]) == ("chat.completion", "gpt")
            assert found["id"].startswith("chatcmpl-")
            assert found["choices"][0]["message"] == {"role": "assistant", "content": "Yes."}
            assert found["choices"][0]["finish_reason"] == "stop"
            prompt, new = len(served.client.requests[0].prompt_ids), len("Yes.") + 1
            usage = {"prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new}
            assert found["usage"] == usage
            _, found = await served.post("/chat/completions", {**body, "max_tokens": 2})
            assert found["choices"][0]["finish_reason"] == "length"
            assert served.client.requests[1].params.max_new_tokens == 2

    asyncio.run(check())


def test_calls_and_events() -> None:
    async def check() -> None:
        async with serve([CALL, CALL]) as served:
            body = {"model": "m", "messages": [USER], "tools": [ADD]}
            _, found = await served.post("/chat/completions", body)
            (choice,) = found["choices"]
            assert choice["finish_reason"] == "tool_calls"
            assert choice["message"]["content"] is None
            (call,) = choice["message"]["tool_calls"]
            assert (call["id"], call["type"], call["function"]["name"]) == ("call_0_0", "function", "add")
            assert json.loads(call["function"]["arguments"]) == {"a": 1, "b": 2}
            _, text = await served.post(
                "/chat/completions", {**body, "stream": True, "stream_options": {"include_usage": True}}
            )
            *parts, last = text.strip().split("\n\n")
            assert last == "data: [DONE]"
            said, end, usage = (json.loads(part.removeprefix("data: ")) for part in parts)
            assert said["object"] == "chat.completion.chunk"
            assert said["choices"][0]["delta"]["tool_calls"][0] == {**call, "index": 0, "id": "call_1_0"}
            assert end["choices"][0]["finish_reason"] == "tool_calls"
            assert usage["choices"] == []
            assert usage["usage"]["total_tokens"] > 0

    asyncio.run(check())


def test_tools_may_be_switched_off() -> None:
    assert ChatDialect().read({"messages": [USER], "tools": [ADD], "tool_choice": "none"}).tools == ()


@pytest.mark.parametrize("key", ["max_tokens", "max_completion_tokens"])
def test_both_names_of_the_limit_are_read(key: str) -> None:
    assert ChatDialect().read({"messages": [USER], key: 7}).max_new_tokens == 7


def test_what_the_engine_does_not_do_is_named() -> None:
    body = {"messages": [USER], "response_format": {"type": "json_object"}, "tool_choice": "required", "top_p": 0.5}
    assert ChatDialect().read(body).ignored == ("top_p", "tool_choice", "response_format")
    plain = {"messages": [USER], "response_format": {"type": "text"}, "tool_choice": "auto", "top_p": None}
    assert ChatDialect().read(plain).ignored == ()
