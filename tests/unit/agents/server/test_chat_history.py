"""The tokens of a request: those that were sampled stay, however a client writes them."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import pytest

from rlinf.agents.server.chat_history import ended_by, read_completion
from rlinf.agents.server.dialects.dialect import ServedRequest
from rlinf.data.messages.generation import Completion
from tests.unit.agents.conversations import END, QWEN2_5
from tests.unit.agents.server.served_episode import ADD, CALL, USER, serve

RESULT = {"role": "tool", "tool_call_id": "call_0_0", "content": "3"}
AGAIN = {"role": "user", "content": "Again."}


def changed(message: Mapping[str, Any], **keys: Any) -> dict[str, Any]:
    return {**message, **keys}


def with_arguments(message: Mapping[str, Any], arguments: str) -> dict[str, Any]:
    (call,) = message["tool_calls"]
    return {**message, "tool_calls": [{**call, "function": {**call["function"], "arguments": arguments}}]}


@pytest.mark.parametrize(
    "rewrite",
    [
        lambda message: message,
        lambda message: with_arguments(message, json.dumps({"a": 1, "b": 2})),
        lambda message: with_arguments(message, '{"b":2,"a":1}'),
        lambda message: changed(message, content=None),
        lambda message: changed(message, content=[{"type": "text", "text": "I add."}]),
        lambda message: changed(message, content="I add.\n", reasoning_content=None, refusal=None),
        lambda message: changed(message, name="assistant"),
    ],
)
def test_a_turn_is_continued_however_it_is_written(rewrite: Any) -> None:
    async def check() -> None:
        lines = [f"<think>\nhm\n</think>\n\nI add. {CALL}", "It is 3."]
        async with serve(lines) as served:
            reply = await served.chat([USER], tools=[ADD])
            assert reply["reasoning_content"] == "hm"
            assert reply["content"] == "I add."
            await served.chat([USER, rewrite(reply), RESULT], tools=[ADD])
            first, second = (request.prompt_ids for request in served.client.requests)
            assert lines[0] + END in served.client.decoded(1), "the thought and the spaces of the call are still there"
            assert second[: len(first)] == first
            assert END + END not in served.client.decoded(1)
            assert served.client.decoded(1).endswith(
                "<|im_start|>user\n<tool_response>\n3\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
            )
            (trajectory,) = served.engine.recorder.trajectories()
            assert len(trajectory.turns) == 2

    asyncio.run(check())


@pytest.mark.parametrize(
    ("rewrite", "keys"),
    [
        (lambda message: with_arguments(message, '{"a": 1, "b": 3}'), {}),
        (lambda message: changed(message, tool_calls=None, content="I called add."), {}),
        (lambda message: changed(message, content="I subtract."), {}),
        (lambda message: message, {"tools": [changed(ADD, type="other")]}),
    ],
)
def test_a_history_that_says_something_else_is_another_branch(rewrite: Any, keys: Any) -> None:
    async def check() -> None:
        async with serve([f"I add. {CALL}", "It is 3."], template=QWEN2_5) as served:
            reply = await served.chat([USER], tools=[ADD])
            await served.chat([USER, rewrite(reply), RESULT], **{"tools": [ADD], **keys})
            assert len(served.engine.recorder.trajectories()) == 2

    asyncio.run(check())


def test_calls_of_a_history_that_was_not_sampled_are_written_as_the_model_writes_them() -> None:
    async def check() -> None:
        async with serve(["It is 3."]) as served:
            call = {"id": "x", "type": "function", "function": {"name": "add", "arguments": '{"b": 2, "a": 1}'}}
            await served.chat([USER, {"role": "assistant", "content": "So:", "tool_calls": [call]}, RESULT])
            text = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
            assert f"So:\n{text}<|im_end|>" in served.client.decoded(0)

    asyncio.run(check())


def test_two_turns_later_it_is_still_one_branch() -> None:
    async def check() -> None:
        async with serve([f"<think>\nhm\n</think>\n\n{CALL}", "It is 3.", "Yes.", "No."]) as served:
            messages: list[Any] = [USER, await served.chat([USER], tools=[ADD]), RESULT]
            messages += [await served.chat(messages, tools=[ADD]), AGAIN]
            messages += [await served.chat(messages, tools=[ADD]), AGAIN]
            await served.chat(messages, tools=[ADD])
            (trajectory,) = served.engine.recorder.trajectories()
            assert len(trajectory.turns) == 4

    asyncio.run(check())


def test_parallel_requests_are_branches_and_each_continues_its_own() -> None:
    async def check() -> None:
        async with serve(["Left.", "Right.", "And left.", "And right."]) as served:
            left, right = await asyncio.gather(served.chat([USER]), served.chat([USER]))
            await served.chat([USER, left, AGAIN])
            await served.chat([USER, right, AGAIN])
            turns = [[turn.number for turn in each.turns] for each in served.engine.recorder.trajectories()]
            assert turns == [[0, 2], [1, 3]]

    asyncio.run(check())


def test_the_first_of_several_stop_strings_ends_a_completion() -> None:
    completion = Completion(token_ids=(1,), logprobs=(0.0,), versions=(0,), finish_reason="stop")
    request = ServedRequest(messages=(USER,), stop=("other", "<end>", "none"))
    assert ended_by("I stop. <end> other", request, completion) == "<end>"
    assert read_completion("I stop. <end> other", request, completion, 0).text == "I stop."
    assert ended_by("I stop.", request, completion) == ""
    cut = dataclasses.replace(completion, finish_reason="length")
    assert ended_by("I stop. <end>", request, cut) == ""


@pytest.mark.parametrize("echoed", ["I stop.", "I stop.<end>", "I stop.<end>\n"])
def test_a_stop_string_is_kept_in_the_tokens_and_cut_from_the_text(echoed: str) -> None:
    async def check() -> None:
        async with serve([("I stop. <end>", "stop"), "Yes."]) as served:
            reply = await served.chat([USER], stop=["<end>", "other"])
            assert reply["content"] == "I stop."
            assert served.client.requests[0].params.stop == ("<end>", "other")
            await served.chat([USER, {"role": "assistant", "content": echoed}, AGAIN], stop=["<end>"])
            assert "I stop. <end><|im_end|>\n<|im_start|>user\nAgain." in served.client.decoded(1)
            assert len(served.engine.recorder.trajectories()) == 1

    asyncio.run(check())


def test_a_call_that_cannot_be_read_is_text() -> None:
    async def check() -> None:
        broken = '<tool_call>\n{"name": "add", "arguments": \n</tool_call>'
        async with serve([f"Well. {broken}", CALL, "Yes."]) as served:
            reply = await served.chat([USER], tools=[ADD])
            assert reply["content"] == f"Well. {broken}"
            assert "tool_calls" not in reply
            reply = await served.chat([USER])
            assert reply["content"] == CALL, "there are no tools"

    asyncio.run(check())


def test_a_text_is_continued_with_its_tokens() -> None:
    async def check() -> None:
        async with serve([" a time", " there was"]) as served:
            _, first = await served.post("/completions", {"model": "m", "prompt": "Once upon"})
            assert first["choices"][0]["text"] == " a time"
            await served.post("/completions", {"model": "m", "prompt": "Once upon a time, long ago"})
            assert served.client.decoded(1) == f"Once upon a time{END}, long ago"
            assert len(served.engine.recorder.trajectories()) == 1

    asyncio.run(check())
