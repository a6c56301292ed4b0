"""Episodes of the workflow ``search``: Search-R1's tags within one turn of a chat."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rlinf.agents.episode import Episode, play_episode
from rlinf.agents.episode_engine import EpisodeEngine, EpisodeLimits
from rlinf.agents.tools.toolbox import ToolBox
from rlinf.agents.workflow import WorkflowContext
from rlinf.agents.workflows.search_loop import SearchWorkflow, read_query
from rlinf.config.schema.agent import FunctionToolConfig, SearchConfig
from rlinf.data.messages.generation import SamplingParams
from tests.unit.agents.conversations import END, QWEN2_5, ScriptedEngine, make_prompt, make_tokenizer

CONFIG = SearchConfig(
    workflow="search",
    tools={"wiki": FunctionToolConfig(tool_type="function", function="tests.unit.agents.agent_functions:look_up")},
)


def play(lines: list[Any], *, max_turns: int = 8) -> tuple[Episode, ScriptedEngine]:
    tokenizer = make_tokenizer(QWEN2_5)
    workflow = SearchWorkflow(CONFIG, WorkflowContext(template=None, tools=ToolBox(CONFIG.tools, tokenizer)))
    workflow.check()
    client = ScriptedEngine(tokenizer, lines)
    engine = EpisodeEngine(
        make_prompt(tokenizer, "Capital?"),
        client,
        params=SamplingParams(max_new_tokens=200, stop=("STOP",)),
        limits=EpisodeLimits(max_turns=max_turns, max_context_tokens=9999),
        seed=0,
    )
    return asyncio.run(play_episode(workflow, engine, timeout_seconds=60)), client


def test_what_is_found_stands_behind_the_search_and_the_turn_goes_on() -> None:
    first = ("<think>I look.</think> <search> France </search>", "stop")
    second = ("Again. <search>Spain</search>", "stop")
    answer = ("<answer>Madrid</answer>", "stop")
    episode, client = play([first, second, answer])
    (trajectory,) = episode.trajectories
    own = trajectory.token_ids[trajectory.loss_mask].tolist()
    assert client.tokenizer.decode(own) == first[0] + second[0] + answer[0]
    text = client.tokenizer.decode(trajectory.token_ids.tolist())
    assert text == (
        f"{first[0]}\n\n<information>About France: {END}</information>\n\n"
        f"{second[0]}\n\n<information>About Spain: {END}</information>\n\n{answer[0]}"
    )
    end = client.tokenizer.convert_tokens_to_ids(END)
    assert end not in trajectory.token_ids.tolist(), "what a tool returns ends no turn"
    assert client.requests[0].params.stop == ("STOP", "</search>", "</answer>")
    assert (episode.status, episode.outcome) == ("done", None)
    assert episode.metrics["tool/wiki_calls"] == 2
    assert [message["role"] for message in episode.transcript] == [
        *("user", "assistant", "tool", "assistant", "tool", "assistant")
    ]
    assert episode.transcript[2]["content"] == f"About France: {END}"


def test_an_episode_ends_with_a_turn_that_does_not_search() -> None:
    for line in ("<search>France</search> It is Paris.", "Paris.", "<search></search>", ("<search>Fra", "length")):
        episode, client = play([line])
        assert (episode.status, len(client.requests)) == ("done", 1)


def test_searches_that_are_used_up_end_it_as_it_stands() -> None:
    episode, _ = play([("<search>a</search>", "stop")] * 2, max_turns=2)
    assert (episode.status, len(episode.trajectories[0].turns)) == ("length", 2)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("<search> a\nb </search>\n", "a\nb"),
        ("<search>a</search> then <search>b</search>", "b"),
        ("<search>a <search>b</search>", "b"),
        ("<answer>x</answer>", None),
        ("<search>a</search>.", None),
        ("a</search>", None),
        ("<search> </search>", None),
    ],
)
def test_the_query_is_that_of_the_last_search(text: str, query: str | None) -> None:
    assert read_query(text) == query
