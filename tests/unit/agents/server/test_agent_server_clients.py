"""Programs on the packages that people use, each in a process of its own: what they do to a history costs no token."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlinf.agents.programs import run_program
from rlinf.agents.recorder import Trajectory
from rlinf.agents.workflows.program import row_of
from tests.conftest import is_installed
from tests.unit.agents.conversations import END, QWEN3
from tests.unit.agents.server.served_episode import Served, serve

PROGRAMS = Path(__file__).resolve().parents[3] / "e2e" / "agent_programs"
CALL = '<tool_call>\n{"name": "add", "arguments": {"b":2,  "a": 1}}\n</tool_call>'
THOUGHT = "<think>\nI add.\n</think>\n\n"
LINES = [f"{THOUGHT}Well. {CALL}", f"{CALL}{CALL}", f"{THOUGHT}It is 3."]


def play(program: str, lines: Sequence[Any], *arguments: str, template: str = QWEN3) -> tuple[Any, Served]:
    """Run a program over an engine that says ``lines``; return what it printed, and the episode."""

    async def check() -> tuple[Any, Served]:
        async with serve(lines, template=template) as served:
            address, key = served.server.base_url, served.session.key
            env = {"OPENAI_BASE_URL": address, "OPENAI_API_KEY": key}
            env |= {"ANTHROPIC_BASE_URL": address.removesuffix("/v1"), "ANTHROPIC_API_KEY": key}
            command = [sys.executable, str(PROGRAMS / f"{program}.py"), *arguments]
            output = await run_program(command, stdin=json.dumps(row_of(served.engine.prompt)).encode(), env=env)
        return json.loads(output.splitlines()[-1])["said"], served

    return asyncio.run(check())


def needs(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not is_installed(package), reason=f"needs the package {package}")


def check_invariants(served: Served, trajectories: Sequence[Trajectory]) -> None:
    """Each token that was sampled is trained on once, in its own context, with its own numbers; and no other is."""
    found: dict[int, Mapping[str, Any]] = {}
    for each in trajectories:
        trained = np.zeros(len(each.token_ids), dtype=bool)
        for turn in each.turns:
            context = (*each.prompt_ids.tolist(), *each.token_ids[: turn.start].tolist())
            assert context == served.client.requests[turn.number].prompt_ids
            trained[turn.start : turn.stop] = True
            own = slice(turn.start, turn.stop)
            assert turn.number not in found
            found[turn.number] = {"text": served.client.tokenizer.decode(each.token_ids[own].tolist())}
            logprobs = -0.5 - np.arange(turn.stop - turn.start) / 64
            np.testing.assert_array_equal(each.logprobs[own], logprobs.astype(np.float32))
            assert set(each.versions[own].tolist()) == {turn.number + 1}
        np.testing.assert_array_equal(each.loss_mask, trained)
    texts = [line + END if isinstance(line, str) else line[0] for line in served.client.lines]
    assert [found[number]["text"] for number in sorted(found)] == texts[: len(served.client.requests)]
    assert len(served.client.requests) == len(served.client.lines)


@needs("openai")
def test_the_openai_package() -> None:
    said, served = play("openai_sdk", LINES)
    assert said == "It is 3."
    (trajectory,) = served.engine.recorder.trajectories()
    check_invariants(served, [trajectory])
    assert served.engine.counts["server/ignored_parameters"] == 3


@needs("anthropic")
def test_the_anthropic_package() -> None:
    said, served = play("anthropic_sdk", LINES)
    assert said == "It is 3."
    (trajectory,) = served.engine.recorder.trajectories()
    check_invariants(served, [trajectory])


@needs("openai")
def test_streams_of_the_openai_package() -> None:
    lines = ["One.", "Two.", "Three.", (" a time", "length"), (" more. ", "stop")]
    said, served = play("openai_streams", lines)
    assert said == ["One.", "Two.", "Three.", " a time", " more"]
    trajectories = served.engine.recorder.trajectories()
    check_invariants(served, trajectories)
    assert [len(each.turns) for each in trajectories] == [3, 2]


@pytest.mark.frameworks
def test_langchain() -> None:
    said, served = play("langchain_agent", LINES)
    assert said == "It is 3."
    (trajectory,) = served.engine.recorder.trajectories()
    check_invariants(served, [trajectory])


@pytest.mark.frameworks
def test_the_agents_sdk() -> None:
    said, served = play("openai_agents_agent", LINES)
    assert said == "It is 3."
    (trajectory,) = served.engine.recorder.trajectories()
    check_invariants(served, [trajectory])


@pytest.mark.frameworks
def test_smolagents_that_call_tools_rewrite_the_history() -> None:
    final = '<tool_call>\n{"name": "final_answer", "arguments": {"answer": "3"}}\n</tool_call>'
    said, served = play("smolagents_agent", [f"Well. {CALL}", final], "tools")
    assert said == "3"
    trajectories = served.engine.recorder.trajectories()
    check_invariants(served, trajectories)
    assert len(trajectories) == 2


@pytest.mark.frameworks
def test_smolagents_that_write_code_add_to_what_was_said() -> None:
    lines = ["Thought: I add.\n<code>\nprint(add(1, 2))\n</code>", "Thought: Done.\n<code>\nfinal_answer('3')\n</code>"]
    said, served = play("smolagents_agent", [(line, "stop") for line in lines], "code")
    assert said == "3"
    trajectories = served.engine.recorder.trajectories()
    check_invariants(served, trajectories)
    assert len(trajectories) == 2, "the calls that it made are a part of the assistant's message"
