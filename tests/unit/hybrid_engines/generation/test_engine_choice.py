"""Which engine a request goes to."""

from __future__ import annotations

import heapq
import random

import pytest

from rlinf.hybrid_engines.generation.engine_choice import choose_engine


@pytest.mark.parametrize(
    ("load", "home", "chosen"),
    [([0, 0, 0], 1, 1), ([0, 1, 0], 1, 1), ([1, 2, 0], 1, 2), ([0, 2, 0], 1, 2), ([0, 9, 9], 2, 0), ([5], 0, 0)],
)
def test_a_request_leaves_its_home_only_where_another_engine_is_clearly_less_loaded(
    load: list[int], home: int, chosen: int
) -> None:
    assert choose_engine(load, home) == chosen


@pytest.mark.parametrize(("between", "num_episodes"), [(0.1, 64), (0.3, 64), (0.1, 88)])
def test_turns_stay_at_home_and_no_engine_is_run_over(between: float, num_episodes: int) -> None:
    """Episodes of 8 turns on 8 engines, in groups of 4; turns and what lies between them take random time."""
    chance = random.Random(0)
    load, served, num_home = [0] * 8, [0] * 8, 0
    # When, which episode, its turn, and the engine on which a turn ends; -1 where one begins.
    events = [(chance.random(), episode, 0, -1) for episode in range(num_episodes)]
    heapq.heapify(events)
    while events:
        now, episode, turn, ends_on = heapq.heappop(events)
        if ends_on >= 0:
            load[ends_on] -= 1
            if turn + 1 < 8:
                heapq.heappush(events, (now + chance.expovariate(1 / between), episode, turn + 1, -1))
            continue
        home = episode // 4 % 8
        chosen = choose_engine(load, home)
        load[chosen] += 1
        served[chosen] += 1
        num_home += chosen == home
        heapq.heappush(events, (now + chance.uniform(0.5, 1.5), episode, turn, chosen))
    assert max(served) <= 1.3 * sum(served) / 8
    assert 0.95 * sum(served) <= num_home < sum(served)
