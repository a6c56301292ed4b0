"""Episodes of a main agent and its sub-agents, which are one model."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from rlinf.agents.episode import Episode, play_episode
from rlinf.agents.episode_engine import EpisodeEngine, EpisodeLimits
from rlinf.agents.episode_groups import make_group
from rlinf.agents.template import ChatTemplate
from rlinf.agents.tools.toolbox import ToolBox
from rlinf.agents.workflow import WorkflowContext
from rlinf.agents.workflows.delegate import DelegateTool, DelegateWorkflow
from rlinf.config.schema.agent import CalculatorToolConfig, DelegateConfig
from rlinf.data.messages.generation import Completion, GenerationRequest, SamplingParams
from rlinf.errors import AgentError, EngineError
from tests.unit.agents.conversations import ALTERNATING, END, QWEN2_5, ScriptedEngine, make_prompt, make_tokenizer

TOKENIZER = make_tokenizer(QWEN2_5)


def call(name: str, **arguments: str) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def task(text: str) -> str:
    return call("delegate", task=text)


def make_episode(client: Any, *, max_turns: int = 8, max_context: int = 9999, **keys: Any) -> Episode:
    cfg = DelegateConfig(workflow="delegate", tools={"calc": CalculatorToolConfig(tool_type="calculator")}, **keys)
    template = ChatTemplate(TOKENIZER)
    workflow = DelegateWorkflow(cfg, WorkflowContext(template=template, tools=ToolBox(cfg.tools, TOKENIZER)))
    workflow.check()
    engine = EpisodeEngine(
        make_prompt(TOKENIZER, tools=[DelegateTool("delegate", cfg.tools["calc"]).schema]),
        client,
        params=SamplingParams(max_new_tokens=400),
        limits=EpisodeLimits(max_turns=max_turns, max_context_tokens=max_context),
        seed=7,
        template=template,
    )
    return asyncio.run(play_episode(workflow, engine, timeout_seconds=60))


def play(lines: list[Any], **keys: Any) -> tuple[Episode, ScriptedEngine]:
    client = ScriptedEngine(TOKENIZER, lines)
    return make_episode(client, **keys), client


LINES = [task("6*7") + task("8*9"), call("calc", expression="6*7"), "It is 72.", "It is 42.", "42 and 72."]


def test_each_agent_has_a_branch_and_all_tokens_are_trained_on() -> None:
    episode, client = play(LINES, worker_prompt="Work out {task}.")
    assert len(episode.trajectories) == 3
    own = [TOKENIZER.decode(each.token_ids[each.loss_mask].tolist()) for each in episode.trajectories]
    assert sorted(own) == sorted([LINES[0] + END + LINES[4] + END, LINES[1] + END + LINES[3] + END, LINES[2] + END])
    agents = [{turn.agent for turn in each.turns} for each in episode.trajectories]
    assert sorted(map(sorted, agents)) == [[""], ["worker.1"], ["worker.2"]]
    first, second = client.decoded(1), client.decoded(2)
    assert "Work out 6*7.<|im_end|>" in first
    assert "Work out 8*9.<|im_end|>" in second
    assert '"calc"' in first
    assert '"delegate"' not in first
    assert '"delegate"' in client.decoded(0)
    assert '"calc"' not in client.decoded(0)
    results = [message["content"] for message in episode.transcript if message["role"] == "tool"]
    assert results == ["It is 42.", "It is 72."], "in the order of the calls"
    assert episode.metrics["tool/delegate_calls"] == 2
    assert episode.metrics["tool/calc_calls"] == 1
    assert episode.metrics["forks"] == 0


def test_agents_sample_with_random_streams_of_their_own() -> None:
    _, client = play(LINES)
    assert len({request.params.seed for request in client.requests}) == len(LINES)
    assert client.requests[0].params.seed == 7
    assert len({request.request_id for request in client.requests}) == len(LINES)
    _, alone = play([task("6*7"), call("calc", expression="6*7"), "It is 42.", "42."])
    assert [alone.requests[k].params.seed for k in (0, 1, 2, 3)] == [
        client.requests[k].params.seed for k in (0, 1, 3, 4)
    ], "no stream depends on how many agents there are"


def test_rewards_read_the_main_agents_last_reply() -> None:
    limited, _ = play([*LINES[:2], "It is 72.", "It is 42."], max_turns=1)
    assert limited.status == "length"
    done, _ = play(LINES)
    group = make_group(make_prompt(TOKENIZER), 0, [limited, done], TOKENIZER)
    assert group.texts == (LINES[0], LINES[4])
    assert len(group.batch.responses) == 2
    assert len(group.batch.responses[1].branch_lengths) == 3


def test_limits_of_sub_agents_are_text() -> None:
    lines = [task("a"), call("calc", expression="1"), task("b"), "Two.", task("c"), "No."]
    episode, _ = play(lines, worker_turns=1, max_agents=2)
    results = [message["content"] for message in episode.transcript if message["role"] == "tool"]
    assert results == [
        "Error: the other agent has used up its turns or its context.",
        "Two.",
        "Error: there may be 2 other agents, and all have worked.",
    ]
    assert episode.status == "done"
    assert episode.metrics["tool/delegate_errors"] == 2


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (call("calc", expression="1"), "Error: there is no tool 'calc'. Tools: delegate."),
        (call("delegate"), "Error: 'task' is a required property."),
    ],
)
def test_calls_that_do_not_fit_are_text(line: str, error: str) -> None:
    episode, _ = play([line, "No."])
    assert episode.transcript[2]["content"] == error


class Meeting(ScriptedEngine):
    """Completes the requests of sub-agents only when two are there."""

    def __init__(self) -> None:
        super().__init__(TOKENIZER, LINES[:1] + ["One.", "Two.", "End."])
        self.met = asyncio.Event()

    async def generate(self, request: GenerationRequest) -> Completion:
        completion = await super().generate(request)
        if len(self.requests) == 3:
            self.met.set()
        if len(self.requests) in {2, 3}:
            await self.met.wait()
        return completion


def test_tasks_of_one_turn_are_worked_on_at_once() -> None:
    episode = make_episode(Meeting(), worker_timeout_seconds=20.0)
    assert [message["content"] for message in episode.transcript[2:4]] == ["One.", "Two."]


def test_a_sub_agent_that_takes_too_long_is_left() -> None:
    class Slow(ScriptedEngine):
        async def generate(self, request: GenerationRequest) -> Completion:
            completion = await super().generate(request)
            await asyncio.sleep(60 if len(self.requests) == 2 else 0)
            return completion

    episode = make_episode(Slow(TOKENIZER, [task("a"), "x", "End."]), worker_timeout_seconds=0.1)
    assert episode.transcript[2]["content"] == "Error: delegate did not return within 0.1 s."
    assert len(episode.trajectories) == 1


def test_an_engine_that_fails_is_not_the_models_fault() -> None:
    class Failing(ScriptedEngine):
        failed = False

        async def generate(self, request: GenerationRequest) -> Completion:
            if self.requests and not self.failed:  # the first of the sub-agent; the main agent could go on
                self.failed = True
                raise EngineError("of my own")
            return await super().generate(request)

    with pytest.raises(EngineError, match="of my own"):
        make_episode(Failing(TOKENIZER, [task("a"), "End."]))


def test_a_template_without_tools_is_refused_at_the_start() -> None:
    cfg = DelegateConfig(workflow="delegate", tools={})
    template = ChatTemplate(make_tokenizer(ALTERNATING))
    workflow = DelegateWorkflow(cfg, WorkflowContext(template=template, tools=ToolBox({}, TOKENIZER)))
    with pytest.raises(AgentError, match="continued by the role tool"):
        workflow.check()
