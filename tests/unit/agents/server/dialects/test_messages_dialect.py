"""Anthropic's messages: blocks in, blocks out, and the same tokens as in the other dialects."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from rlinf.agents.server.dialects.dialect import RequestError
from rlinf.agents.server.dialects.messages_dialect import MessagesDialect
from tests.unit.agents.server.served_episode import ADD, CALL, serve

TOOL = {
    "name": "add",
    "description": "Adds.",
    "input_schema": ADD["function"]["parameters"],
}
BODY: dict[str, Any] = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "1+2?"}]}


def read(**keys: Any) -> Any:
    return MessagesDialect().read({**BODY, **keys})


def test_blocks_of_a_turn_are_continued() -> None:
    async def check() -> None:
        async with serve([f"<think>\nhm\n</think>\n\nI add. {CALL}", "It is 3."]) as served:
            body = {**BODY, "system": [{"type": "text", "text": "Add."}], "tools": [TOOL]}
            _, found = await served.post("/messages", body)
            assert (found["type"], found["role"], found["stop_reason"]) == ("message", "assistant", "tool_use")
            thought, text, call = found["content"]
            assert (thought["type"], thought["thinking"]) == ("thinking", "hm")
            assert (text["type"], text["text"]) == ("text", "I add.")
            assert (call["type"], call["name"], call["input"]) == ("tool_use", "add", {"a": 1, "b": 2})
            result = {"type": "tool_result", "tool_use_id": call["id"], "content": [{"type": "text", "text": "3"}]}
            follows = [
                {"role": "assistant", "content": found["content"]},
                {"role": "user", "content": [result, {"type": "text", "text": "So?"}]},
            ]
            _, found = await served.post("/messages", {**body, "messages": [*body["messages"], *follows]})
            assert found["content"] == [{"type": "text", "text": "It is 3.", "citations": None}]
            assert (found["stop_reason"], found["stop_sequence"]) == ("end_turn", None)
            (trajectory,) = served.engine.recorder.trajectories()
            assert len(trajectory.turns) == 2
            assert "<|im_start|>system\nAdd." in served.client.decoded(0)
            assert served.client.decoded(1).index("3\n</tool_response>") < served.client.decoded(1).index("So?")
            tokens = served.client.requests[1].prompt_ids
            assert found["usage"]["input_tokens"] == len(tokens)
            assert found["usage"]["output_tokens"] == len(trajectory.token_ids[trajectory.turns[1].start :])

    asyncio.run(check())


def test_chats_and_messages_continue_each_other() -> None:
    async def check() -> None:
        async with serve(["Yes.", "No."]) as served:
            await served.post("/messages", BODY)
            await served.chat(
                [*BODY["messages"], {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And?"}]
            )
            assert len(served.engine.recorder.trajectories()) == 1

    asyncio.run(check())


def test_events_make_up_the_message() -> None:
    async def check() -> None:
        async with serve([f"<think>\nhm\n</think>\n\nI add. {CALL}"]) as served:
            _, text = await served.post("/messages", {**BODY, "tools": [TOOL], "stream": True})
            parts = text.strip().split("\n\n")
            events = [json.loads(part.split("data: ")[1]) for part in parts]
            assert [f"event: {event['type']}" for event in events] == [part.split("\n")[0] for part in parts]
            kinds = [event["type"] for event in events]
            block = ["content_block_start", "content_block_delta", "content_block_stop"]
            assert kinds == ["message_start", *block * 3, "message_delta", "message_stop"]
            assert [event["index"] for event in events[1:-2]] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
            assert events[0]["message"]["content"] == []
            assert [start["content_block"] for start in events[1:-2:3]] == [
                {"type": "thinking", "thinking": "", "signature": ""},
                {"type": "text", "text": "", "citations": None},
                {"type": "tool_use", "id": "call_0_0", "name": "add", "input": {}},
            ]
            thought, said, call = (event["delta"] for event in events[2:-2:3])
            assert thought == {"type": "thinking_delta", "thinking": "hm"}
            assert said == {"type": "text_delta", "text": "I add."}
            assert json.loads(call["partial_json"]) == {"a": 1, "b": 2}
            assert events[-2]["delta"]["stop_reason"] == "tool_use"
            assert events[-2]["usage"]["output_tokens"] > events[0]["message"]["usage"]["output_tokens"] == 0

    asyncio.run(check())


def test_why_a_message_ends() -> None:
    async def check() -> None:
        async with serve([("cut", "length"), ("One END", "stop"), "One."]) as served:
            ends = []
            for _ in range(3):
                _, found = await served.post("/messages", {**BODY, "stop_sequences": ["STOP", "END"]})
                ends.append((found["content"][0]["text"], found["stop_reason"], found["stop_sequence"]))
            assert ends[0] == ("cut", "max_tokens", None)
            assert ends[1] == ("One", "stop_sequence", "END")
            assert ends[2] == ("One.", "end_turn", None)

    asyncio.run(check())


def test_the_key_comes_in_a_header_of_its_own_and_errors_in_the_clients_words() -> None:
    async def check() -> None:
        async with serve(["Yes."]) as served:
            address = f"{served.server.base_url}/messages"
            async with served.http.post(address, json=BODY, headers={"x-api-key": served.session.key}) as response:
                assert response.status == 200
            async with served.http.post(address, json=BODY, headers={"x-api-key": "other"}) as response:
                failure = await response.json()
                assert (response.status, failure["type"]) == (401, "error")
                assert "belongs to no episode" in failure["error"]["message"]

    asyncio.run(check())


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"max_tokens": None}, "max_tokens: the protocol requires it"),
        ({"messages": []}, "expected a list of messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "content of the type 'image'"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "the client's own tools alone"),
        ({"stop_sequences": [""]}, "expected strings that are not empty"),
    ],
)
def test_what_cannot_be_served_says_why(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        read(**keys)


def test_what_the_engine_does_not_do_is_named() -> None:
    found = read(temperature=1.0, tool_choice={"type": "any"}, thinking={"type": "enabled", "budget_tokens": 9})
    assert found.ignored == ("temperature", "tool_choice", "thinking")
    assert read(tools=[TOOL], tool_choice={"type": "none"}).tools == ()
    assert read(tools=[TOOL]).tools == (ADD,)
