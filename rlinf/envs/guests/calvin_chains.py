"""CALVIN's tasks, and the 1,000 chains of five that its long-horizon evaluation plays (arXiv 2112.03227).

A chain has a start: which lights are on, which way slider and drawer are, and where three blocks lie. Which tasks can
follow each other is decided by rules on such symbols alone. The published evaluation samples chains by numpy's legacy
generator; ``sample_chains`` does the same with the same random numbers, in minutes, and ``calvin_chains.txt`` has what
it returns.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .calvin_tasks import CATEGORIES, RULES, TASKS

if TYPE_CHECKING:
    # Guests may run on Python 3.8, where these cannot be evaluated.
    from collections.abc import Iterator

    Symbols = dict[str, Any]
    Array = np.ndarray[Any, Any]
    Chain = tuple[Symbols, tuple[str, ...]]

NUM_CHAINS = 1000
CHAIN_LENGTH = 5
"""Tasks of a chain."""

_SYMBOLS = {
    "led": (0, 1),
    "lightbulb": (0, 1),
    "slider": ("right", "left"),
    "drawer": ("closed", "open"),
    "red_block": ("table", "slider_right", "slider_left"),
    "blue_block": ("table", "slider_right", "slider_left"),
    "pink_block": ("table", "slider_right", "slider_left"),
    "grasped": (0,),
}
_FILE = Path(__file__).with_suffix(".txt")

_ROBOT = (
    *(0.02586889, -0.2313129, 0.5712808, 3.09045411, -0.02908596, 1.50013585, 0.07999963),
    *(-1.21779124, 1.03987629, 2.11978254, -2.34205014, -0.87015899, 1.64119093, 0.55344928, 1.0),
)
_IN_SLIDER = {
    "slider_left": (-0.240851662, 0.0924044687, 0.460990009),
    "slider_right": (0.070341633, 0.0924044687, 0.460990009),
}
_ON_TABLE = ((0.0500000896, -0.120000177, 0.459990009), (0.229995412, -0.11999514, 0.45999001))
_YAW = (np.pi * 3 / 8, np.pi * 5 / 8)
"""Between which blocks are turned."""


def starts() -> list[Symbols]:
    """Return the starts in the published order: one or two blocks lie on the table, the others apart in the slider."""
    found = []
    for values in product(*_SYMBOLS.values()):
        alone = values.count("slider_right") < 2 and values.count("slider_left") < 2
        if alone and values.count("table") in (1, 2):
            found.append({name: values[place] for place, name in enumerate(_SYMBOLS)})
    return found


def next_symbols(symbols: Symbols, task: str) -> Symbols | None:
    """Return what a task leaves behind, or None where not exactly one of its rules applies."""
    effects = [effect for condition, effect in RULES[task] if _holds(symbols, condition)]
    return {**symbols, **effects[0]} if len(effects) == 1 else None


def is_chain(symbols: Symbols, tasks: tuple[str, ...]) -> bool:
    """Return whether tasks can follow each other from a start, no two of one category."""
    if len({CATEGORIES[task] for task in tasks}) < len(tasks):
        return False
    for task in tasks:
        following = next_symbols(symbols, task)
        if following is None:
            return False
        symbols = following
    return True


def sample_from(number: int, symbols: Symbols) -> Iterator[tuple[str, ...]]:
    """Yield chains of a start without end.

    Args:
        number: The start's place among ``starts()``, which is its seed.
        symbols: The start.
    """
    generator = np.random.RandomState(number)
    firsts = {place for place, task in enumerate(TASKS) if next_symbols(symbols, task) is not None}
    while True:
        # A published choice without replacement is the beginning of a permutation.
        places = generator.permutation(len(TASKS))[:CHAIN_LENGTH]
        if places[0] not in firsts:
            continue
        tasks = tuple(TASKS[place] for place in places)
        if is_chain(symbols, tasks):
            yield tasks


def sample_chains(num_chains: int = NUM_CHAINS) -> list[Chain]:
    """Return chains as the published evaluation samples and shuffles them, which takes minutes."""
    found: list[Chain] = []
    beginnings = starts()
    for number, part in enumerate(np.array_split(range(num_chains), len(beginnings))):
        tasks = sample_from(number, beginnings[number])
        found.extend((beginnings[number], next(tasks)) for _ in part)
    order = np.arange(num_chains)
    np.random.RandomState(0).shuffle(order)
    return [found[place] for place in order]


def write_chains(chains: list[Chain], file: Path = _FILE) -> None:
    """Write chains: a line has the number of the start and those of the tasks."""
    beginnings = starts()
    rows = [[beginnings.index(symbols), *(TASKS.index(task) for task in tasks)] for symbols, tasks in chains]
    file.write_text("".join(" ".join(map(str, row)) + "\n" for row in rows), encoding="utf-8")


def load_chains(file: Path = _FILE) -> list[Chain]:
    """Return the published chains, in their order."""
    beginnings = starts()
    rows = [[int(number) for number in line.split()] for line in file.read_text(encoding="utf-8").splitlines()]
    return [(beginnings[row[0]], tuple(TASKS[place] for place in row[1:])) for row in rows]


def chains_that_begin(first_tasks: list[str] | None) -> list[Chain]:
    """Return the published chains whose first task is one of these; None returns all."""
    return [chain for chain in load_chains() if first_tasks is None or chain[1][0] in first_tasks]


def start_state(symbols: Symbols) -> tuple[Array, Array]:
    """Return what the simulator is reset to.

    Returns:
        The robot [15] and the scene [24]: slider, drawer, button, switch, both lights, and of each block its position
        in metres and its rotation about x, y and z.
    """
    generator = np.random.RandomState(_fnv1(f"dict_values({list(symbols.values())})"))
    places = np.array(_ON_TABLE)
    generator.shuffle(places)
    scene = np.zeros(24)
    scene[0] = 0.28 if symbols["slider"] == "left" else 0.0
    scene[1] = 0.22 if symbols["drawer"] == "open" else 0.0
    scene[3] = 0.088 if symbols["lightbulb"] == 1 else 0.0
    scene[4:6] = symbols["lightbulb"], symbols["led"]
    # The first place is red's, or else blue's; pink has the second one. The published order of both.
    on_table = {"red_block": 0, "blue_block": int(symbols["red_block"] == "table"), "pink_block": 1}
    for index, block in enumerate(on_table):
        place = _IN_SLIDER.get(symbols[block])
        scene[6 + 6 * index : 9 + 6 * index] = places[on_table[block]] if place is None else place
        scene[11 + 6 * index] = generator.uniform(*_YAW)
    return np.array(_ROBOT), scene


def _holds(symbols: Symbols, condition: Symbols) -> bool:
    return all(
        symbols[name] in wanted if isinstance(wanted, tuple) else symbols[name] == wanted
        for name, wanted in condition.items()
    )


def _fnv1(text: str) -> int:
    """Return the hash that the published evaluation takes as a seed: pyhash's 32-bit FNV-1.

    It differs from the usual one: it begins at 0, and hashes a text's UTF-16.
    """
    value = 0
    for byte in text.encode("utf-16-le"):
        value = (value * 0x01000193) % 2**32 ^ byte
    return value
