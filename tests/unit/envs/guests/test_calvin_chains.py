"""CALVIN's chains of tasks are the published ones."""

import hashlib
import json
from itertools import islice

import numpy as np
import pytest

from rlinf.envs.guests.calvin_chains import (
    NUM_CHAINS,
    chains_that_begin,
    is_chain,
    load_chains,
    next_symbols,
    sample_chains,
    sample_from,
    start_state,
    starts,
)
from rlinf.envs.guests.calvin_tasks import CATEGORIES, RULES, SENTENCES, TASKS

# Of toolkits/calvin/published_chains.py, which ran the published generator.
CHAINS_HASH = "840cb992c69ce9b6d59f6020966b6300c15233f8e0b9667b6486c1962424d308"
STATES_HASH = "bb391afd6be669cc7a708c798374e4efa3e72bf4e1296152bde5298f6bd77bdf"
TASKS_HASH = "60f27e31fb6a27f5d45a52cb8909279ae584a517261fa23f2e923d613644df1e"


def digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def test_the_tasks_are_the_published_ones() -> None:
    rules = {task: [[dict(sorted(part.items())) for part in rule] for rule in RULES[task]] for task in TASKS}
    assert len(TASKS) == 34
    assert digest([SENTENCES, CATEGORIES, rules]) == TASKS_HASH


def test_the_chains_are_the_published_ones() -> None:
    chains = load_chains()
    assert len(chains) == NUM_CHAINS
    assert digest([[symbols, list(tasks)] for symbols, tasks in chains]) == CHAINS_HASH
    assert all(is_chain(symbols, tasks) for symbols, tasks in chains)


def test_the_start_states_are_the_published_ones() -> None:
    states = [[part.tolist() for part in start_state(symbols)] for symbols in starts()]
    assert len(states) == 192
    assert digest(states) == STATES_HASH


def test_the_sampler_yields_the_chains_of_a_start() -> None:
    symbols = starts()[7]
    sampled = set(islice(sample_from(7, symbols), 6))
    assert sampled == {tasks for start, tasks in load_chains() if start == symbols}


@pytest.mark.slow  # three minutes: ten million permutations
def test_the_sampler_makes_the_whole_file() -> None:
    assert sample_chains() == load_chains()


def test_a_task_needs_its_condition_and_no_second_one() -> None:
    symbols = {**starts()[0], "drawer": "closed"}
    opened = next_symbols(symbols, "open_drawer")
    assert opened is not None
    assert opened["drawer"] == "open"
    assert next_symbols(opened, "open_drawer") is None
    assert not is_chain(symbols, ("open_drawer", "close_drawer"))
    assert is_chain(symbols, ("open_drawer",))
    held = {**symbols, "red_block": "grasped", "blue_block": "table", "pink_block": "table", "grasped": 1}
    assert next_symbols(held, "stack_block") is None
    assert next_symbols({**held, "pink_block": "drawer"}, "stack_block") is not None


def test_chains_are_chosen_by_their_first_task() -> None:
    chosen = chains_that_begin(["open_drawer", "turn_on_led"])
    assert {tasks[0] for _, tasks in chosen} == {"open_drawer", "turn_on_led"}
    assert [chain for chain in load_chains() if chain[1][0] in {"open_drawer", "turn_on_led"}] == chosen
    assert chains_that_begin(None) == load_chains()


def test_a_start_state_leaves_the_global_generator_alone() -> None:
    before = np.random.get_state()[1].tolist()
    start_state(starts()[3])
    assert np.random.get_state()[1].tolist() == before
