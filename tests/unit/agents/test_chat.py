"""Conversations whose turns are never encoded again, and replies that are read however they are written."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf.agents.chat import parse_reply
from rlinf.agents.episode_engine import EpisodeEngine, EpisodeLimits
from rlinf.agents.template import ChatTemplate
from rlinf.data.messages.generation import SamplingParams
from tests.unit.agents.conversations import END, QWEN2_5, QWEN3, ScriptedEngine, make_prompt, make_tokenizer


def called(text: str) -> str:
    return f"<tool_call>\n{text}\n</tool_call>"


def engine_for(client: ScriptedEngine) -> EpisodeEngine:
    return EpisodeEngine(
        make_prompt(client.tokenizer),
        client,
        params=SamplingParams(max_new_tokens=64),
        limits=EpisodeLimits(max_turns=8, max_context_tokens=4096),
        seed=1,
        template=ChatTemplate(client.tokenizer),
    )


@pytest.mark.parametrize("source", [QWEN2_5, QWEN3])
def test_the_next_prompt_begins_with_the_sampled_tokens(source: str) -> None:
    """The tokenizer merges "ab"; the engine sampled the two letters, and "a", "b" they stay."""
    tokenizer = make_tokenizer(source, merges=[("a", "b")])
    client = ScriptedEngine(tokenizer, ["unused"] * 2)
    a, b, end = (tokenizer.convert_tokens_to_ids(token) for token in ("a", "b", END))
    assert tokenizer.encode("ab", add_special_tokens=False) != [a, b]
    engine = engine_for(client)

    async def play() -> None:
        client.tokenizer = type("Spelling", (), {"encode": staticmethod(lambda *_, **__: [a, b, end])})()
        chat = engine.chat()
        assert (await chat.reply()).text == "ab"
        chat.say({"role": "user", "content": "Go on."})
        await chat.reply()

    asyncio.run(play())
    first, second = (list(request.prompt_ids) for request in client.requests)
    assert second[: len(first) + 3] == [*first, a, b, end]
    assert second[len(first) + 2 :].count(end) == 2
    (trajectory,) = engine.recorder.trajectories()
    assert [turn.stop - turn.start for turn in trajectory.turns] == [3, 3]
    assert not engine.recorder.forks()


@pytest.mark.parametrize("source", [QWEN2_5, QWEN3])
def test_a_conversation_is_the_templates_own_text(source: str) -> None:
    tokenizer = make_tokenizer(source)
    client = ScriptedEngine(tokenizer, ["One.", ("Two", "length"), "Three."])
    engine = engine_for(client)

    async def play() -> None:
        chat = engine.chat()
        await chat.reply()
        chat.say({"role": "tool", "content": "R"}, {"role": "user", "content": "And?"})
        reply = await chat.reply()
        assert (reply.finish_reason, reply.turn) == ("length", 1)
        chat.say({"role": "user", "content": "Go on."})
        await chat.reply()
        expected = tokenizer.apply_chat_template(chat.messages[:-1], tokenize=False, add_generation_prompt=True)
        assert client.decoded(2) == expected

    asyncio.run(play())
    assert len(engine.recorder.trajectories()) == 1


def test_thoughts_of_earlier_turns_stay_in_the_context() -> None:
    """The template would leave them out: every token is trained on in the context that it was sampled in."""
    lines: list[Any] = [f"<think>\nThought {number}.\n</think>\n\nReply {number}." for number in range(3)]
    lines[1] = (lines[1], "stop")  # by a stop string: the template closes the turn
    client = ScriptedEngine(make_tokenizer(QWEN3), lines)
    engine = engine_for(client)

    async def play() -> None:
        chat = engine.chat()
        for _ in lines:
            await chat.reply()
            chat.say({"role": "user", "content": "Go on."})

    asyncio.run(play())
    (trajectory,) = engine.recorder.trajectories()
    whole = (*trajectory.prompt_ids.tolist(), *trajectory.token_ids.tolist())
    for turn, request in zip(trajectory.turns, client.requests, strict=True):
        assert whole[: len(trajectory.prompt_ids) + turn.start] == request.prompt_ids
    assert [f"Thought {number}." in client.decoded(2) for number in range(3)] == [True, True, False]
    assert client.decoded(2).count(f"{END}\n<|im_start|>user") == 2
    assert not engine.recorder.forks()


def test_a_chat_about_other_messages_begins_a_trajectory() -> None:
    client = ScriptedEngine(make_tokenizer(QWEN2_5), ["One.", "Two."])
    engine = engine_for(client)

    async def play() -> None:
        await engine.chat().reply()
        await engine.chat([{"role": "user", "content": "Other?"}]).reply()

    asyncio.run(play())
    assert "Other?" in client.decoded(1)
    assert len(engine.recorder.trajectories()) == 2


def test_thoughts_text_and_calls_are_told_apart() -> None:
    call = json.dumps({"name": "add", "arguments": {"a": "</tool_call>"}})
    reply = parse_reply(f"<think>\nhm\n</think>\n\nI add. {called(call)} And: {called(call)}", turn=2)
    assert (reply.reasoning, reply.text) == ("hm", "I add.  And:")
    assert [(call.id, call.name, dict(call.arguments)) for call in reply.tool_calls] == [
        ("call_2_0", "add", {"a": "</tool_call>"}),
        ("call_2_1", "add", {"a": "</tool_call>"}),
    ]
    assert all(call.error is None for call in reply.tool_calls)
    assert parse_reply("<think> without an end <tool_call>").tool_calls == ()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (called('{"name": "add", "arguments": {"a": 1'), "not valid JSON"),
        ('<tool_call>{"name": "add"}', "</tool_call> is missing"),
        (called('[{"name": "add"}]'), "must be a JSON object, received list"),
        (called('{"arguments": {}}'), "needs the name of a tool"),
        (called('{"name": 3}'), "needs the name of a tool"),
        (called('{"name": "add", "arguments": [1]}'), "arguments must be a JSON object, received list"),
        (called('{"name": "add"} or so'), "text behind the JSON of the call: or so"),
        (called("[" * 100_000), "nested too deeply|not valid JSON"),
        (called(""), "not valid JSON"),
    ],
)
def test_a_call_that_cannot_be_read_has_an_error(text: str, error: str) -> None:
    (call,) = parse_reply(text).tool_calls
    assert call.error is not None
    assert error.split("|")[0] in call.error or error.split("|")[-1] in call.error
    assert (call.name, call.arguments) == ("", {})


def test_what_follows_a_broken_call_is_read() -> None:
    broken, whole = parse_reply(called("{") + called('{"name": "add"}')).tool_calls
    assert broken.error is not None
    assert (whole.name, whole.arguments, whole.error) == ("add", {}, None)


def test_a_thousand_random_replies_are_read() -> None:
    chance = random.Random(0)
    pieces = [b"<tool_call>", b"</tool_call>", b"<think>", b"</think>", b'{"name": "add"', b"}", b'"', b"\\", b"["]
    for _ in range(1000):
        parts = [chance.choice([*pieces, chance.randbytes(5)]) for _ in range(chance.randrange(20))]
        reply = parse_reply(b"".join(parts).decode("utf-8", "replace"))
        assert all(call.error or call.name for call in reply.tool_calls)


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(st.text(max_size=4), st.recursive(st.text(max_size=12) | st.integers() | st.none(), st.lists)),
    st.text(max_size=6),
)
def test_any_call_that_is_written_is_read(arguments: dict[str, object], name: str) -> None:
    (call,) = parse_reply(called(json.dumps({"name": name, "arguments": arguments}))).tool_calls
    assert (call.name, dict(call.arguments), call.error) == (name, arguments, None)
