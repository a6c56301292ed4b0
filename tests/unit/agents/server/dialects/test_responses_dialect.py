"""Responses: items in, items out, and histories that the server keeps."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from rlinf.agents.server.dialects.dialect import RequestError
from rlinf.agents.server.dialects.responses_dialect import ResponsesDialect
from tests.unit.agents.server.served_episode import ADD, CALL, serve

TOOL = {"type": "function", **ADD["function"], "strict": True}


def test_items_of_a_turn_are_continued() -> None:
    async def check() -> None:
        async with serve([f"<think>\nhm\n</think>\n\nI add. {CALL}", "It is 3."]) as served:
            body: dict[str, Any] = {"model": "m", "input": "1+2?", "instructions": "Add.", "tools": [TOOL]}
            _, found = await served.post("/responses", body)
            assert (found["object"], found["status"]) == ("response", "completed")
            thought, message, call = found["output"]
            assert thought["summary"][0]["text"] == "hm"
            assert message["content"][0]["text"] == "I add."
            assert (call["type"], call["name"], call["call_id"]) == ("function_call", "add", "call_0_0")
            result = {"type": "function_call_output", "call_id": call["call_id"], "output": "3"}
            items = [{"role": "user", "content": "1+2?"}, *found["output"], result]
            _, found = await served.post("/responses", {**body, "input": items})
            assert found["output"][0]["content"][0]["text"] == "It is 3."
            (trajectory,) = served.engine.recorder.trajectories()
            assert len(trajectory.turns) == 2
            assert "<|im_start|>system\nAdd." in served.client.decoded(0)

    asyncio.run(check())


def test_a_response_is_followed_by_its_id() -> None:
    async def check() -> None:
        async with serve(["Yes.", "No."]) as served:
            _, found = await served.post("/responses", {"model": "m", "input": "Hi"})
            body = {"model": "m", "input": "And?", "previous_response_id": found["id"]}
            _, found = await served.post("/responses", body)
            assert "Hi<|im_end|>\n<|im_start|>assistant\nYes.<|im_end|>\n<|im_start|>user\nAnd?" in (
                served.client.decoded(1)
            )
            status, found = await served.post("/responses", {**body, "previous_response_id": "resp_x"})
            assert status == 400
            assert "this episode has no response 'x'" in found["error"]["message"]
            assert len(served.engine.recorder.trajectories()) == 1

    asyncio.run(check())


def test_events_make_up_the_response() -> None:
    async def check() -> None:
        async with serve([f"I add. {CALL}", ("cut", "length")]) as served:
            body = {"model": "m", "input": "Hi", "tools": [TOOL], "stream": True}
            _, text = await served.post("/responses", body)
            events = [json.loads(part.split("data: ")[1]) for part in text.strip().split("\n\n")]
            names = [part.split("\n")[0].removeprefix("event: ") for part in text.strip().split("\n\n")]
            assert [event["type"] for event in events] == names
            assert [event["sequence_number"] for event in events] == list(range(len(events)))
            assert names[0] == "response.created"
            assert names[-1] == "response.completed"
            deltas = {event["type"]: event["delta"] for event in events if "delta" in event}
            assert deltas["response.output_text.delta"] == "I add."
            assert json.loads(deltas["response.function_call_arguments.delta"]) == {"a": 1, "b": 2}
            done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
            assert done == events[-1]["response"]["output"]
            _, text = await served.post("/responses", {**body, "max_output_tokens": 3})
            last = json.loads(text.strip().split("\n\n")[-1].split("data: ")[1])
            assert last["type"] == "response.incomplete"
            assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}

    asyncio.run(check())


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"input": 3}, "expected a text or a list of items"),
        ({"input": []}, "expected one item at least"),
        ({"input": "Hi", "background": True}, "background: the server does not do this"),
        ({"input": [{"type": "web_search_call"}]}, "an item of the type 'web_search_call'"),
        ({"input": "Hi", "tools": [{"type": "web_search"}]}, "the model calls functions alone"),
    ],
)
def test_what_cannot_be_served_says_why(body: Any, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        ResponsesDialect().read(body)


def test_what_the_engine_does_not_do_is_named() -> None:
    body = {"input": "Hi", "temperature": 1, "tool_choice": "required", "text": {"format": {"type": "json_schema"}}}
    assert ResponsesDialect().read(body).ignored == ("temperature", "tool_choice", "text.format")
    assert ResponsesDialect().read({"input": "Hi", "tools": [TOOL], "tool_choice": "none"}).tools == ()
