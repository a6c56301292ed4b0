"""A program on the openai package that calls a calculator: the very tokens of the workflow ``tools``."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rlinf.agents.episode import Episode, play_episode
from rlinf.agents.episode_engine import EpisodeEngine, EpisodeLimits
from rlinf.agents.template import ChatTemplate
from rlinf.agents.tools.toolbox import ToolBox
from rlinf.agents.workflow import RolloutWorkflow, WorkflowContext
from rlinf.agents.workflows.program import ProgramWorkflow
from rlinf.agents.workflows.tool_loop import ToolsWorkflow
from rlinf.config import load_recipe
from rlinf.config.schema.agent import CalculatorToolConfig, ProgramConfig, ToolsConfig
from rlinf.data.messages.generation import SamplingParams
from tests.unit.agents.conversations import ScriptedEngine, make_prompt, make_tokenizer
from tests.unit.examples.example_scripts import load_example

pytest.importorskip("openai")
FOLDER = Path(__file__).parents[3] / "examples" / "agents"
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% if m.role == 'assistant' %}<|im_end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
"""As the tiny models have it: schemas of tools are not shown."""
TOOLS = ToolsConfig(workflow="tools", tools={"calc": CalculatorToolConfig(tool_type="calculator")})


@pytest.fixture(scope="module")
def program() -> ModuleType:
    return load_example("agents/sdk_calculator.py")


def call(expression: str) -> str:
    return f"<tool_call>{json.dumps({'name': 'calc', 'arguments': {'expression': expression}})}</tool_call>"


def play(cfg: Any, kind: type[RolloutWorkflow], lines: list[str], seed: int) -> tuple[Episode, ScriptedEngine]:
    tokenizer = make_tokenizer(TEMPLATE)
    template, client = ChatTemplate(tokenizer), ScriptedEngine(tokenizer, lines)

    async def check() -> Episode:
        tools = ToolBox(TOOLS.tools if kind is ToolsWorkflow else {}, tokenizer)
        workflow = kind(cfg, WorkflowContext(template=template, tools=tools))
        engine = EpisodeEngine(
            make_prompt(tokenizer, "123*456="),
            client,
            params=SamplingParams(max_new_tokens=200),
            limits=EpisodeLimits(max_turns=3, max_context_tokens=9999),
            seed=seed,
            template=template,
        )
        try:
            return await play_episode(workflow, engine, timeout_seconds=60)
        finally:
            await workflow.close()

    return asyncio.run(check()), client


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        ("command", [call("123*456"), "56088"]),
        ("function", [f"First {call('123*400')} and {call('123*56')}", call("49200+6888"), "56088"]),
        ("function", ["56088"]),
        ("function", [call("1*1")] * 3),
    ],
)
def test_a_program_draws_the_tokens_of_the_workflow_tools(program: ModuleType, kind: str, lines: list[str]) -> None:
    run: dict[str, Any] = {"command": ["python", str(FOLDER / "sdk_calculator.py")]}
    if kind == "function":
        run = {"function": "sdk_calculator:play"}
    cfg = ProgramConfig(workflow="program", **run)
    (episode, client), (other, tools) = play(cfg, ProgramWorkflow, lines, 7), play(TOOLS, ToolsWorkflow, lines, 7)
    asked, expected = ([dataclasses.replace(r, request_id="") for r in each.requests] for each in (client, tools))
    assert asked == expected
    assert len({request.params.seed for request in asked}) == len(lines)
    (trajectory,), (wanted,) = episode.trajectories, other.trajectories
    for name in ("prompt_ids", "token_ids", "loss_mask"):
        assert getattr(trajectory, name).tolist() == getattr(wanted, name).tolist()


def test_what_cannot_be_computed_is_said_to_the_model(program: ModuleType) -> None:
    assert program.calculate('{"expression": "12*34"}') == "408"
    assert program.calculate('{"expression": "12-34"}') == "-22"
    for arguments in ("{", "[]", "{}", '{"expression": 5}', '{"expression": "12**34"}', '{"expression": "__import__"}'):
        assert program.calculate(arguments) == "Error: expected an expression such as 12*34"


def test_the_calculator_is_the_recipes_own(program: ModuleType) -> None:
    recipe = load_recipe("tiny_calculator_grpo")
    assert program.CALCULATOR["function"]["name"] in recipe.agent.tools
    assert recipe.agent.max_turns == program.MAX_TURNS
