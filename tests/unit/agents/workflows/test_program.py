"""Episodes of programs: functions and commands, on plain HTTP."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from rlinf.agents.episode import Episode, play_episode
from rlinf.agents.episode_engine import EpisodeEngine, EpisodeLimits
from rlinf.agents.template import ChatTemplate
from rlinf.agents.tools.toolbox import ToolBox
from rlinf.agents.workflow import WorkflowContext
from rlinf.agents.workflows.program import ProgramWorkflow
from rlinf.config.schema.agent import ProgramConfig
from rlinf.data.messages.generation import Completion, GenerationRequest, SamplingParams
from rlinf.errors import AgentError, ConfigError, EngineError
from tests.unit.agents.conversations import QWEN3, ScriptedEngine, make_prompt, make_tokenizer

PROGRAM = """
import json, os, sys, urllib.error, urllib.request

def post(path, body):
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + path, json.dumps(body).encode(), headers)
    return json.load(urllib.request.urlopen(request))

def chat(messages):
    return post("/chat/completions", {"model": "m", "messages": messages})["choices"][0]["message"]

row = json.load(sys.stdin)
messages = row["messages"]
"""


class Dead(ScriptedEngine):
    """Dies with the second request."""

    async def generate(self, request: GenerationRequest) -> Completion:
        """See ``ScriptedEngine``."""
        if self.requests:
            raise EngineError("it has died")
        return await super().generate(request)


def play(
    lines: Sequence[Any],
    code: str | None = None,
    *,
    function: str | None = None,
    client: type[ScriptedEngine] = ScriptedEngine,
    max_turns: int = 8,
    timeout_seconds: float = 60.0,
) -> Episode:
    tokenizer = make_tokenizer(QWEN3)
    template = ChatTemplate(tokenizer)
    cfg = ProgramConfig(
        workflow="program",
        command=[] if code is None else ["python", "-c", PROGRAM + code],
        function=None if function is None else f"tests.unit.agents.agent_functions:{function}",
    )

    async def check() -> Episode:
        workflow = ProgramWorkflow(cfg, WorkflowContext(template=template, tools=ToolBox({}, tokenizer)))
        workflow.check()
        engine = EpisodeEngine(
            dataclasses.replace(make_prompt(tokenizer), reference="5", metadata={"level": 2}),
            client(tokenizer, lines),
            params=SamplingParams(max_new_tokens=200),
            limits=EpisodeLimits(max_turns=max_turns, max_context_tokens=9999),
            seed=0,
            template=template,
        )
        try:
            return await play_episode(workflow, engine, timeout_seconds=timeout_seconds)
        finally:
            await workflow.close()

    return asyncio.run(check())


def test_a_command_plays_an_episode() -> None:
    episode = play(
        ["3", "5"],
        "first = chat(messages)\n"
        "second = chat([*messages, first, {'role': 'user', 'content': str(row['metadata'])}])\n"
        "print('Done.')\n"
        "print(json.dumps({'reward': float(second['content'] == row['reference']), 'more': 1}))\n",
    )
    assert (episode.status, episode.outcome) == ("done", 1.0)
    assert [message["content"] for message in episode.transcript] == ["Question?", "3", "{'level': 2}", "5"]
    (trajectory,) = episode.trajectories
    assert len(trajectory.turns) == 2
    assert episode.metrics["server/requests"] == 2


@pytest.mark.parametrize("last", ["", "print('5')", "print('{')", "print(json.dumps({'reward': True}))"])
def test_a_command_need_not_judge(last: str) -> None:
    assert play(["3"], f"chat(messages)\n{last}").outcome is None


def test_a_posted_judgement_comes_before_a_printed_one() -> None:
    code = "chat(messages)\npost('/episode/reward', {'value': 0.25})\nprint(json.dumps({'reward': 1}))"
    assert play(["3"], code).outcome == 0.25


@pytest.mark.parametrize(("function", "outcome"), [("talk", 0.5), ("talk_later", None)])
def test_a_function_plays_an_episode(function: str, outcome: float | None) -> None:
    episode = play(["3"], function=function)
    assert (episode.status, episode.outcome, len(episode.trajectories)) == ("done", outcome, 1)


def test_a_limit_ends_an_episode_that_does_not_see_it() -> None:
    episode = play(["3", "5"], "chat(messages)\nchat(messages)", max_turns=1)
    assert (episode.status, episode.outcome) == ("length", None)
    seen = "chat(messages)\ntry:\n    chat(messages)\nexcept urllib.error.HTTPError:\n    print('{\"reward\": 1}')"
    episode = play(["3", "5"], seen, max_turns=1)
    assert (episode.status, episode.outcome) == ("done", 1.0)


def test_a_program_that_takes_too_long_is_rewarded_as_it_stands() -> None:
    episode = play(["3"], "chat(messages)\nimport time\ntime.sleep(600)", timeout_seconds=3.0)
    assert episode.status == "timeout"
    assert len(episode.trajectories) == 1


def test_what_is_the_programs_fault_is_no_reward() -> None:
    with pytest.raises(AgentError, match=r"exit code 1.*ZeroDivisionError"):
        play(["3"], "chat(messages)\n1 / 0")
    with pytest.raises(AgentError, match="made no request"):
        play([], "pass")
    with pytest.raises(AgentError, match=r"agent\.function: .*:talk_nonsense returned 'no number'"):
        play([], function="talk_nonsense")
    with pytest.raises(AgentError, match=r"agent\.function: .*:talk_badly raised KeyError"):
        play([], function="talk_badly")
    with pytest.raises(ConfigError, match=r"agent\.function: received"):
        play([], function="nothing")


def test_a_dead_engine_ends_the_program_at_once() -> None:
    code = "chat(messages)\ntry:\n    chat(messages)\nexcept Exception:\n    import time\n    time.sleep(600)"
    with pytest.raises(EngineError, match="it has died"):
        play(["3"], code, client=Dead)


def test_the_interpreter_of_the_run_is_used() -> None:
    episode = play(["3"], "chat([{'role': 'user', 'content': sys.executable}])")
    assert episode.transcript[0]["content"] == sys.executable
