"""Episodes of the workflow ``tools``, from the first prompt to the training sample."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest

from rlinf.agents.episode import Episode, play_episode
from rlinf.agents.episode_engine import EpisodeEngine, EpisodeLimits
from rlinf.agents.template import ChatTemplate
from rlinf.agents.tools.toolbox import ToolBox
from rlinf.agents.workflow import WorkflowContext
from rlinf.agents.workflows.tool_loop import ToolsWorkflow
from rlinf.config.schema.agent import CalculatorToolConfig, ToolsConfig
from rlinf.data.messages.generation import SamplingParams
from rlinf.errors import AgentError
from tests.unit.agents.conversations import ALTERNATING, END, QWEN2_5, ScriptedEngine, make_prompt, make_tokenizer

CONFIG = ToolsConfig(workflow="tools", tools={"calculator": CalculatorToolConfig(tool_type="calculator")})


def call(expression: str) -> str:
    arguments = {"expression": expression}
    return f"<tool_call>\n{json.dumps({'name': 'calculator', 'arguments': arguments})}\n</tool_call>"


def play(lines: list[Any], *, max_turns: int = 8) -> tuple[Episode, ScriptedEngine]:
    tokenizer = make_tokenizer(QWEN2_5)
    template = ChatTemplate(tokenizer)
    box = ToolBox(CONFIG.tools, tokenizer)
    workflow = ToolsWorkflow(CONFIG, WorkflowContext(template=template, tools=box))
    workflow.check()
    client = ScriptedEngine(tokenizer, lines)
    engine = EpisodeEngine(
        make_prompt(tokenizer, tools=box.schemas),
        client,
        params=SamplingParams(max_new_tokens=200),
        limits=EpisodeLimits(max_turns=max_turns, max_context_tokens=9999),
        seed=0,
        template=template,
    )
    return asyncio.run(play_episode(workflow, engine, timeout_seconds=60)), client


def test_calls_are_answered_until_a_reply_has_none() -> None:
    lines = [f"I compute. {call('6*7')}", f"{call('42+1')}{call('1/0')}", "It is 43."]
    episode, client = play(lines)
    (trajectory,) = episode.trajectories
    own = trajectory.token_ids[trajectory.loss_mask].tolist()
    assert client.tokenizer.decode(own) == "".join(line + END for line in lines)
    whole = client.tokenizer.decode([*trajectory.prompt_ids.tolist(), *trajectory.token_ids.tolist()])
    assert whole == client.decoded(2) + lines[2] + END
    assert "<tool_response>\n42\n</tool_response>" in whole
    assert "<tool_response>\n43\n</tool_response>\n<tool_response>\nError: ZeroDivisionError" in whole
    assert [message["role"] for message in episode.transcript] == [
        *("user", "assistant", "tool", "assistant", "tool", "tool", "assistant")
    ]
    assert (episode.status, episode.outcome) == ("done", None)
    metrics = dict(episode.metrics)
    assert metrics.pop("tool/calculator_seconds") >= 0
    assert metrics.pop("episode_seconds") > 0
    assert metrics.pop("own_tokens") == len(own)
    assert metrics.pop("context_tokens") == len(trajectory.token_ids) - len(own)
    assert metrics == {
        "turns": 3,
        "episode_timeouts": 0,
        "episode_limits": 0,
        "forks": 0,
        "branches": 1,
        "tool/calculator_calls": 3,
        "tool/calculator_errors": 1,
    }


def test_a_thousand_random_replies_end_no_episode_early() -> None:
    """Whatever the model says, the episode goes on or ends as it would, and it is the model's to answer for."""
    chance = random.Random(0)
    parts = [
        b"<tool_call>",
        b"</tool_call>",
        b'{"name": "calculator"',
        b', "arguments": {"expression": "1"}}',
        b"[",
        b'"',
    ]
    num_replies = num_answered = 0
    while num_replies < 1000:
        lines: list[Any] = []
        for _ in range(10):
            said = b"".join(chance.choice([*parts, chance.randbytes(8)]) for _ in range(chance.randrange(1, 9)))
            lines.append((f"<tool_call>{said.decode('utf-8', 'replace')}", chance.choice(["stop", "length"])))
        episode, client = play([*lines, "Done."], max_turns=11)
        num_replies += len(lines)
        assert episode.status == "done"
        assert len(client.requests) == 11
        assert episode.metrics["forks"] == 0
        (trajectory,) = episode.trajectories
        assert int(trajectory.loss_mask.sum()) == sum(turn.stop - turn.start for turn in trajectory.turns)
        answers = [message["content"] for message in episode.transcript if message["role"] == "tool"]
        assert len(answers) >= 10
        num_answered += sum(answer == "1" for answer in answers)
    assert 0 < num_answered < 100


def test_the_prompt_holds_the_schemas() -> None:
    _, client = play(["No."])
    assert '"name": "calculator"' in client.decoded(0)


def test_turns_that_are_used_up_end_an_episode_as_it_stands() -> None:
    episode, _ = play([call("1"), call("2")], max_turns=2)
    assert (episode.status, len(episode.trajectories[0].turns)) == ("length", 2)
    assert episode.metrics["episode_limits"] == 1


def test_a_template_without_tools_is_refused_at_the_start() -> None:
    tokenizer = make_tokenizer(ALTERNATING)
    box = ToolBox(CONFIG.tools, tokenizer)
    workflow = ToolsWorkflow(CONFIG, WorkflowContext(template=ChatTemplate(tokenizer), tools=box))
    with pytest.raises(AgentError, match=r"continued by the role tool"):
        workflow.check()
