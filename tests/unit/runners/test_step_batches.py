"""Groups that teach nothing are replaced: by which prompts, how many at most, and that none is lost or comes twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runners.text_world import (
    BATCH,
    RESTART,
    SIZE,
    World,
    asked_in_order,
    position,
    run,
    staleness,
)

STEPS = 6
DYNAMIC = "algorithm.max_num_gen_batches=3"
LIMIT = 3 * BATCH


def every_third(number: int) -> bool:
    return number % 3 == 0


def expected_steps(
    teaches: Callable[[Any], Any] | Callable[..., Any], steps: int = STEPS, first: int = 0, limit: int = LIMIT
) -> list[Any]:
    """Return for each step the prompts that it trains on and how many it uses up, by a plain loop."""
    result, position = [], first
    for _ in range(steps):
        examined = list(range(position, position + limit))
        useful = [number for number in examined if teaches(number)][:BATCH]
        used = limit if len(useful) < BATCH else useful[-1] + 1 - position
        used = max(used, BATCH)
        fill = [number for number in examined[:used] if not teaches(number)][: BATCH - len(useful)]
        result.append((sorted(useful + fill), used))
        position += used
    return result


def trained_groups(world: World) -> list[list[Any]]:
    return [[group.group_id for group in groups] for _, groups in world.trained]


def world_of(
    teaches: Callable[[Any], Any] | Callable[..., Any] | Callable[[Any], bool], *deaths: tuple[str, int, str]
) -> World:
    world = World(*deaths)
    world.teaches = teaches
    return world


def check(world: World, expected: Any) -> None:
    assert trained_groups(world) == [groups for groups, _ in expected]
    prompts = dict(asked_in_order(sum(used for _, used in expected)))
    for _, groups in world.trained:
        assert [len(group.batch.responses) for group in groups] == [SIZE] * BATCH
        assert all(group.prompt.index == prompts[group.group_id] for group in groups)


@pytest.mark.parametrize("keys", [(), (f"data.gen_batch_size={2 * BATCH}", "algorithm.max_num_gen_batches=2")])
@pytest.mark.parametrize("threshold", ["null", 0, 1, 2])
def test_steps_use_up_prompts_in_order_until_their_batch_is_full(
    tmp_path: Path, threshold: int | str, keys: tuple[str, ...]
) -> None:
    world = world_of(every_third)
    runner = run(tmp_path, world, DYNAMIC, f"algorithm.staleness_threshold={threshold}", *keys)
    expected = expected_steps(every_third, limit=LIMIT if not keys else 4 * BATCH)
    check(world, expected)
    allowed = 0 if threshold == "null" else threshold
    # Replacing only shortens the time from asking to training.
    assert staleness(world)[0] == 0
    assert max(staleness(world)) <= allowed
    assert position(runner, STEPS) == sum(used for _, used in expected)


def test_without_the_key_equal_scores_are_trained_on(tmp_path: Path) -> None:
    world = world_of(every_third)
    run(tmp_path, world)
    assert trained_groups(world) == [list(range(step * BATCH, (step + 1) * BATCH)) for step in range(STEPS)]


def test_nothing_is_asked_that_is_not_needed(tmp_path: Path) -> None:
    world = world_of(every_third)
    run(tmp_path, world, DYNAMIC)
    assert [number for number, _ in world.begun] == list(range(sum(used for _, used in expected_steps(every_third))))


def test_what_a_generation_batch_has_too_much_is_asked_again_with_later_weights(tmp_path: Path) -> None:
    world = world_of(lambda number: number != 1)
    runner = run(tmp_path, world, DYNAMIC, f"data.gen_batch_size={2 * BATCH}", "runner.max_epochs=2")
    # Step 1 uses up 0-4 of 0-7, step 2 goes on with 5.
    assert trained_groups(world) == [[0, 2, 3, 4], [5, 6, 7, 8]]
    assert world.begun == [*((number, 0) for number in range(8)), *((number, 1) for number in range(5, 13))]
    assert staleness(world) == [0, 0]
    assert position(runner, 2) == 9


@pytest.mark.parametrize("teaches", [lambda number: False, lambda number: number in {2, 13}], ids=["none", "few"])
def test_a_bound_ends_the_search_and_the_batch_is_filled_up(tmp_path: Path, teaches: Callable[..., Any]) -> None:
    world = world_of(teaches)
    runner = run(tmp_path, world, DYNAMIC, "runner.max_epochs=2")
    check(world, expected_steps(teaches, steps=2))
    table = (runner.logger.folder / "samples" / "step_00000002.jsonl").read_text().splitlines()
    assert [json.loads(row)["group"] for row in table[::SIZE]] == trained_groups(world)[1]
    metrics = runner.logger.metrics
    useful = sum(map(teaches, range(LIMIT, 2 * LIMIT)))
    assert metrics["rollout/prompts_asked"] == LIMIT
    assert metrics["rollout/missing_groups"] == BATCH - useful
    assert metrics["rollout/filtered_groups"] == pytest.approx(1 - useful / LIMIT)
    # All that was asked counts in the mean, not only what was kept.
    assert metrics["rollout/reward"] == pytest.approx(0.5 * useful / LIMIT)


def test_bounds_on_the_mean_reward_replace_too(tmp_path: Path) -> None:
    world = world_of(lambda number: True)
    bounds = ("algorithm.filter_rewards=true", "algorithm.rewards_lower_bound=0.6")
    run(tmp_path, world, DYNAMIC, *bounds, "runner.max_epochs=1")  # the mean of a group is 0.5
    assert trained_groups(world) == [list(range(BATCH))]
    assert len(world.begun) == LIMIT


@pytest.mark.parametrize("threshold", ["null", 2])
def test_a_resumed_run_goes_on_behind_what_was_used_up(tmp_path: Path, threshold: int | str) -> None:
    keys = (DYNAMIC, f"algorithm.staleness_threshold={threshold}", "runner.save_interval=2")
    expected = expected_steps(every_third)
    runner = run(tmp_path, world_of(every_third), *keys, "runner.max_epochs=4")
    used = [used for _, used in expected]
    assert [position(runner, step) for step in (2, 4)] == [sum(used[:2]), sum(used[:4])]
    world = world_of(every_third)
    run(tmp_path, world, *keys, "runner.resume_dir=auto")
    assert trained_groups(world) == [groups for groups, _ in expected[4:]]


@pytest.mark.parametrize("threshold", ["null", 2])
@pytest.mark.parametrize("keys", [(), (f"data.gen_batch_size={2 * BATCH}",)], ids=["missing", "ahead"])
@pytest.mark.parametrize(
    "dies",
    [
        ("generate", 10, "rollout"),
        ("generate", 23, "rollout"),
        ("score", 17, "reward"),
        ("sync_model_from_actor", 5, "rollout"),
    ],
)
def test_a_death_costs_no_answer(
    tmp_path: Path, threshold: int | str, keys: tuple[str, ...], dies: tuple[str, int, str]
) -> None:
    world = world_of(every_third, dies)
    run(tmp_path, world, RESTART, DYNAMIC, f"algorithm.staleness_threshold={threshold}", *keys)
    assert not world.deaths
    check(world, expected_steps(every_third, limit=LIMIT if not keys else 6 * BATCH))
    assert max(staleness(world)) <= (2 if threshold == 2 else 0)


def test_an_interrupted_step_is_asked_again_as_a_whole(tmp_path: Path) -> None:
    world = world_of(every_third)
    world.interrupt_in = ("compute_advantages", 3)
    runner = run(tmp_path, world, DYNAMIC, "algorithm.staleness_threshold=1", start=False)
    with pytest.raises(KeyboardInterrupt):
        runner.run()
    assert position(runner, 3) == sum(used for _, used in expected_steps(every_third, steps=3))
