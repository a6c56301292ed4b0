"""How episodes end: by limits, by time, by a fault; and what is left of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rlinf.agents.episode import Episode, play_episode
from rlinf.agents.episode_engine import EpisodeEngine, EpisodeLimits
from rlinf.agents.template import ChatTemplate
from rlinf.agents.tools.toolbox import ToolBox
from rlinf.agents.workflow import RolloutWorkflow, WorkflowContext
from rlinf.agents.workflows.rlvr import RLVRWorkflow
from rlinf.data.messages.generation import SamplingParams
from rlinf.data.messages.responses import Prompt
from rlinf.errors import AgentError
from tests.unit.agents.conversations import QWEN2_5, ScriptedEngine, make_prompt, make_tokenizer

TOKENIZER = make_tokenizer(QWEN2_5)
CONTEXT = WorkflowContext(template=ChatTemplate(TOKENIZER), tools=ToolBox({}, TOKENIZER))


def make_engine(*lines: str, max_context_tokens: int = 999) -> EpisodeEngine:
    return EpisodeEngine(
        make_prompt(TOKENIZER),
        ScriptedEngine(TOKENIZER, lines),
        params=SamplingParams(max_new_tokens=50),
        limits=EpisodeLimits(max_turns=4, max_context_tokens=max_context_tokens),
        seed=0,
        template=CONTEXT.template,
    )


class Sleeping(RolloutWorkflow):
    """Samples, and then waits without end; it notices that it is left."""

    was_left = False

    async def arun_episode(self, engine: EpisodeEngine, data: Prompt) -> float:
        if self.cfg != "at once":
            await engine.agenerate(data.token_ids)
        try:
            await asyncio.sleep(3600)
        finally:
            self.was_left = True
        return 1.0


class Raising(RolloutWorkflow):
    async def arun_episode(self, engine: EpisodeEngine, data: Prompt) -> float:
        await engine.agenerate(data.token_ids)
        raise KeyError("mine")


def test_one_completion_is_one_trajectory() -> None:
    engine = make_engine("Yes.")
    episode = asyncio.run(play_episode(RLVRWorkflow(None, CONTEXT), engine, timeout_seconds=60))
    (trajectory,) = episode.trajectories
    assert trajectory.prompt_ids.tolist() == list(engine.prompt.token_ids)
    assert trajectory.loss_mask.all()
    assert (episode.status, episode.transcript, episode.metrics["turns"]) == ("done", (), 1)


def test_time_that_is_used_up_ends_an_episode_as_it_stands() -> None:
    workflow = Sleeping(None, CONTEXT)

    async def play() -> Episode:
        episode = await play_episode(workflow, make_engine("Yes."), timeout_seconds=0.2)
        assert workflow.was_left, "by the episode, not by the end of the loop"
        return episode

    episode = asyncio.run(play())
    assert (episode.status, episode.outcome, len(episode.trajectories)) == ("timeout", None, 1)
    assert episode.metrics["episode_timeouts"] == 1


@pytest.mark.parametrize(
    ("workflow", "keys", "status"),
    [(Sleeping("at once", CONTEXT), {}, "timeout"), (RLVRWorkflow(None, CONTEXT), {"max_context_tokens": 5}, "length")],
)
def test_an_episode_without_a_token_is_an_error(workflow: RolloutWorkflow, keys: Any, status: str) -> None:
    with pytest.raises(AgentError, match=rf"Row 0: the episode ended \({status}\) before a token was sampled"):
        asyncio.run(play_episode(workflow, make_engine("Yes.", **keys), timeout_seconds=0.2))


def test_what_a_workflow_raises_is_raised() -> None:
    with pytest.raises(KeyError, match="mine"):
        asyncio.run(play_episode(Raising(None, CONTEXT), make_engine("Yes."), timeout_seconds=60))


def test_cancelling_an_episode_cancels_its_workflow() -> None:
    workflow = Sleeping(None, CONTEXT)

    async def cancel() -> None:
        task = asyncio.ensure_future(play_episode(workflow, make_engine("Yes."), timeout_seconds=60))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert workflow.was_left

    asyncio.run(cancel())
