"""Episodes of the workflow ``multi_turn``: a function responds, and ends them."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from rlinf.agents.episode import Episode, play_episode
from rlinf.agents.episode_engine import EpisodeEngine, EpisodeLimits
from rlinf.agents.template import ChatTemplate
from rlinf.agents.tools.toolbox import ToolBox
from rlinf.agents.workflow import WorkflowContext
from rlinf.agents.workflows.multi_turn import MultiTurnWorkflow
from rlinf.config.schema.agent import MultiTurnConfig
from rlinf.data.messages.generation import SamplingParams
from rlinf.errors import AgentError, ConfigError
from tests.unit.agents.conversations import QWEN3, ScriptedEngine, make_prompt, make_tokenizer


def play(respond: str, lines: list[str]) -> tuple[Episode, ScriptedEngine]:
    tokenizer = make_tokenizer(QWEN3)
    template = ChatTemplate(tokenizer)
    cfg = MultiTurnConfig(workflow="multi_turn", respond=f"tests.unit.agents.agent_functions:{respond}")
    workflow = MultiTurnWorkflow(cfg, WorkflowContext(template=template, tools=ToolBox({}, tokenizer)))
    workflow.check()
    client = ScriptedEngine(tokenizer, lines)
    engine = EpisodeEngine(
        dataclasses.replace(make_prompt(tokenizer), reference=5),
        client,
        params=SamplingParams(max_new_tokens=200),
        limits=EpisodeLimits(max_turns=8, max_context_tokens=9999),
        seed=0,
        template=template,
    )
    return asyncio.run(play_episode(workflow, engine, timeout_seconds=60)), client


def test_a_function_responds_until_it_judges() -> None:
    episode, client = play("guess", ["<think>\nlow\n</think>\n\n3", "8", "5"])
    assert (episode.status, episode.outcome, len(episode.trajectories)) == ("done", 1.0, 1)
    assert [message["content"] for message in episode.transcript[2::2]] == ["higher", "lower"]
    assert "<think>\nlow\n</think>" in client.decoded(2), "the episode is one branch"


def test_an_episode_may_end_without_a_judgement() -> None:
    episode, _ = play("end_at_once", ["x"])
    assert (episode.status, episode.outcome) == ("done", None)


def test_replies_may_have_rewards_of_their_own() -> None:
    episode, client = play("praise", ["0.5", "-1", "5"])
    (trajectory,) = episode.trajectories
    assert [turn.reward for turn in trajectory.turns] == [0.5, -1.0, 0.0]
    assert (episode.outcome, episode.metrics["turn_reward"]) == (1.0, -0.5)
    assert "reward" not in client.decoded(2)
    assert all("reward" not in message for message in episode.transcript)
    assert "turn_reward" not in play("guess", ["5"])[0].metrics
    with pytest.raises(AgentError, match=r"agent\.respond: .*:praise returned the reward 'much'; expected a finite"):
        play("praise", ['"much"'])
    with pytest.raises(AgentError, match=r"returned the reward nan"):
        play("praise", ["NaN"])


def test_what_is_no_message_and_no_function_is_an_error() -> None:
    with pytest.raises(AgentError, match=r"agent\.respond: .*:confuse returned list; expected text or a message"):
        play("confuse", ["x"])
    with pytest.raises(ConfigError, match=r"agent\.respond: received"):
        play("nothing", [])
