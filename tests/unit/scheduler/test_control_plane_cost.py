"""What the control plane costs each worker must not grow with the number of workers."""

import pytest

from benchmarks.control_plane import PHASES, measure

SMALL, LARGE = 50, 1_000


@pytest.fixture(scope="module")
def costs() -> dict[int, dict[str, dict[str, float]]]:
    return {size: measure(size) for size in (SMALL, LARGE)}


# The one notice that ends a group names its endpoints, 18 bytes for each rank, once a run; see below.
COSTS = [
    (phase, unit)
    for phase in PHASES
    for unit in ("instructions", "messages", "bytes")
    if (phase, unit) != ("close", "bytes")
]


# Anything that each worker does once for each other worker costs 20 times as much for 20 times as many.
@pytest.mark.parametrize(("phase", "unit"), COSTS)
def test_the_cost_of_a_worker_is_the_same_in_a_large_run(
    costs: dict[int, dict[str, dict[str, float]]], phase: str, unit: str
) -> None:
    assert costs[LARGE][phase][unit] <= 1.3 * costs[SMALL][phase][unit] + 1


def test_ending_a_group_tells_each_process_once(costs: dict[int, dict[str, dict[str, float]]]) -> None:
    assert costs[LARGE]["close"]["messages"] <= 1
    assert costs[LARGE]["close"]["bytes"] < 20 * LARGE


def test_a_step_sends_no_lists_of_workers(costs: dict[int, dict[str, dict[str, float]]]) -> None:
    assert costs[LARGE]["step"]["bytes"] < 100
