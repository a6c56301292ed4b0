"""Requests of an episode: limits, seeds, and what is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from rlinf.agents.episode_engine import ContextFullError, EpisodeEngine, EpisodeLimits, TurnLimitError
from rlinf.agents.template import ChatTemplate
from rlinf.data.messages.generation import Completion, FinishReason, SamplingParams
from rlinf.data.messages.responses import Prompt
from rlinf.errors import AgentError
from tests.unit.agents.conversations import QWEN2_5, ScriptedEngine, make_prompt, make_tokenizer

TOKENIZER = make_tokenizer(QWEN2_5)


def make_engine(
    lines: Sequence[str | tuple[str, FinishReason]], *, max_turns: int = 4, max_context_tokens: int = 100, seed: int = 3
) -> tuple[EpisodeEngine, ScriptedEngine]:
    client = ScriptedEngine(TOKENIZER, lines)
    engine = EpisodeEngine(
        Prompt(index=7, token_ids=(5, 6), text="x"),
        client,
        params=SamplingParams(max_new_tokens=10, min_new_tokens=8, n=4, stop=("#",)),
        limits=EpisodeLimits(max_turns=max_turns, max_context_tokens=max_context_tokens),
        seed=seed,
        name="train-1-0",
        template=ChatTemplate(TOKENIZER),
    )
    return engine, client


def generate(engine: EpisodeEngine, prompt: Sequence[int], **values: object) -> Completion:
    return asyncio.run(engine.agenerate(prompt, **values))  # type: ignore[arg-type]


def test_a_request_is_one_completion_with_the_recipes_parameters() -> None:
    engine, client = make_engine(["a", "b", "c", "d"])
    generate(engine, [5, 6])
    generate(engine, [5, 6], max_new_tokens=3, stop=["!"])
    generate(engine, [5] * 96)
    generate(engine, [5] * 96, max_new_tokens=8)
    plain, shorter, narrow, wide = (request.params for request in client.requests)
    assert (plain.n, plain.max_new_tokens, plain.min_new_tokens, plain.stop) == (1, 10, 8, ("#",))
    assert (shorter.max_new_tokens, shorter.min_new_tokens, shorter.stop) == (3, 3, ("#", "!"))
    assert (narrow.max_new_tokens, narrow.min_new_tokens) == (wide.max_new_tokens, wide.min_new_tokens) == (4, 4)
    assert [request.request_id for request in client.requests] == [f"train-1-0-{turn}" for turn in range(4)]


def test_seeds_follow_from_the_episodes_and_the_turn() -> None:
    seeds = []
    for seed in (3, 3, 4):
        engine, client = make_engine(["a", "b"], seed=seed)
        generate(engine, [5])
        generate(engine, [6])
        seeds.append([request.params.seed for request in client.requests])
    assert seeds[0] == seeds[1]
    assert len({*seeds[0], *seeds[2]}) == 4


def test_limits_end_an_episode() -> None:
    engine, client = make_engine(["a", "b"], max_turns=2)
    generate(engine, [5])
    with pytest.raises(ContextFullError, match=r"100 tokens leaves no room .* agent\.max_context_tokens"):
        generate(engine, [5] * 100)
    generate(engine, [5] * 99)
    with pytest.raises(TurnLimitError, match=r"its 2 turns\. Raise agent\.max_turns"):
        generate(engine, [5])
    assert len(client.requests) == 2


def test_a_turn_that_is_encoded_again_into_other_tokens_is_an_error() -> None:
    tokenizer = make_tokenizer(QWEN2_5, merges=[("a", "b")])
    client = ScriptedEngine(make_tokenizer(QWEN2_5), [("ab", "length"), "c"])
    engine = EpisodeEngine(
        make_prompt(tokenizer),
        client,
        params=SamplingParams(),
        limits=EpisodeLimits(max_turns=4, max_context_tokens=4096),
        seed=0,
        template=ChatTemplate(tokenizer),
    )
    prompt = list(engine.prompt.token_ids)
    generate(engine, prompt)
    again = tokenizer.encode("abc", add_special_tokens=False)
    with pytest.raises(AgentError, match=r"turn 1 spells .* Continue the tokens .* engine\.chat\(\)"):
        generate(engine, [*prompt, *again])


def test_an_aborted_request_is_not_recorded() -> None:
    engine, _ = make_engine([("a", "abort")])
    with pytest.raises(AgentError, match="train-1-0-0 was aborted"):
        generate(engine, [5])
    assert engine.recorder.trajectories() == ()


def test_a_chat_needs_a_conversation() -> None:
    engine, _ = make_engine([])
    with pytest.raises(AgentError, match=r"Row 7 is text.*data\.apply_chat_template=true"):
        engine.chat()


def test_the_turn_that_was_taken_last_is_rewarded() -> None:
    engine, _ = make_engine(["a", "b", "c"])
    with pytest.raises(AgentError, match=r"engine\.reward\(\) rewards the turn that was taken last, and none was"):
        engine.reward(1.0)
    generate(engine, [5])
    engine.reward(0.5)
    engine.reward(0.25)
    worker = engine.agent("worker.1", max_turns=2)
    generate(worker, [6])
    generate(engine, [7])
    worker.reward(-1.0)
    turns = {turn.number: turn.reward for each in engine.recorder.trajectories() for turn in each.turns}
    assert turns == {0: 0.75, 1: -1.0, 2: 0.0}
    with pytest.raises(AgentError, match=r"Turn 2: received a reward of nan\. Give a finite number"):
        engine.reward(float("nan"))
    with pytest.raises(AgentError, match=r"Turn 9: nothing was sampled that could be rewarded"):
        engine.recorder.reward(9, 1.0)


def test_the_last_turn_of_an_episode_that_was_taken_over_is_rewarded() -> None:
    engine, _ = make_engine(["a", "b"])
    played = engine.renewed("session-1")
    generate(played, [5])
    generate(played, [6])
    engine.take_over(played)
    engine.reward(0.5)
    turns = {turn.number: turn.reward for each in engine.recorder.trajectories() for turn in each.turns}
    assert turns == {0: 0.0, 1: 0.5}
