"""``algorithm.carry_over``: slow groups come later, once each, within the bound on staleness, after a resume too."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from rlinf.config import load_recipe, validate_cfg
from rlinf.errors import ConfigError
from tests.unit.runners.reply_groups import Call
from tests.unit.runners.text_world import BATCH, RESTART, World, asked_in_order, run, staleness, trained_in_order

STEPS = 6
CARRY = "algorithm.carry_over=0.25"
NEVER = 99


class SlowWorld(World):
    """Some groups are generated only after some trainings, or when the run waits for nothing else.

    Args:
        slow: By number of a group, how many trainings it takes.
        *deaths: See ``World``.

    Attributes:
        waited_for: Groups that the run has waited for.
    """

    def __init__(self, slow: dict[int, int], *deaths: tuple[str, int, str]) -> None:
        super().__init__(*deaths)
        self.slow = slow
        self.held: dict[int, Call] = {}
        self.waited_for: list[int] = []
        self.num_syncing = 0

    def serve(self, call: Call) -> None:
        number = call.keys.get("group_id")
        if call.method == "generate" and call.keys["split"] == "train" and self.slow.get(number, 0) > len(self.trained):
            self.generate(call)
            self.held[number] = call
            return
        self.num_syncing += call.method == "sync_model_from_actor"
        super().serve(call)
        if call.method == "run_training":
            for number in [number for number in self.held if self.slow[number] <= len(self.trained)]:
                self.held.pop(number).give(None)

    def receive(self, call: Call) -> None:
        super().receive(call)
        self.num_syncing -= 1

    def end_slowest(self) -> None:
        """The run waits: let the oldest group that is held end, unless something else is on its way."""
        if self.held and not self.num_syncing:
            number = min(self.held)
            self.waited_for.append(number)
            self.held.pop(number).give(None)


def play(folder: Path, world: SlowWorld, *keys: str, threshold: int = 1) -> Any:
    runner = run(folder, world, CARRY, f"algorithm.staleness_threshold={threshold}", *keys, start=False)
    pool = runner.pool
    wait = pool._completed.wait

    def wait_for_something() -> None:
        if not any(call.result.done() for call in pool._calls):
            world.end_slowest()
        wait()

    pool._completed.wait = wait_for_something
    runner.run()
    return runner


def trained(world: World) -> list[list[int]]:
    return [[group.group_id for group in groups] for _, groups in world.trained]


def test_a_slow_group_is_trained_on_by_the_next_step(tmp_path: Path) -> None:
    world = SlowWorld({1: 1})
    runner = play(tmp_path, world)
    assert trained(world) == [
        [0, 2, 3, 4],
        [1, 5, 6, 7],
        *([*range(first, first + BATCH)] for first in range(8, 24, BATCH)),
    ]
    assert world.waited_for == []
    assert [number for number, _ in world.begun] == list(range(STEPS * BATCH)), "no more is begun than is trained on"
    assert sorted(trained_in_order(world)) == asked_in_order(STEPS * BATCH)
    assert runner.logger.metrics["rollout/carried_groups"] == 0.0


def test_one_that_would_exceed_the_bound_is_waited_for(tmp_path: Path) -> None:
    world = SlowWorld({1: NEVER})
    play(tmp_path, world)
    assert world.waited_for == [1]
    assert trained(world)[:2] == [[0, 2, 3, 4], [1, 5, 6, 7]]
    assert max(staleness(world)) == 1


def test_a_larger_bound_gives_more_time(tmp_path: Path) -> None:
    world = SlowWorld({1: NEVER})
    play(tmp_path, world, threshold=2)
    assert trained(world)[:3] == [[0, 2, 3, 4], [5, 6, 7, 8], [1, 9, 10, 11]]
    assert world.waited_for == [1]
    assert max(staleness(world)) == 2


def test_no_more_groups_are_left_for_later_than_the_share(tmp_path: Path) -> None:
    world = SlowWorld({0: NEVER, 1: NEVER})
    play(tmp_path, world)
    assert world.waited_for == [0, 1]
    assert trained(world)[0] == [0, 2, 3, 4], "one of the two is waited for"


def test_the_number_of_groups_that_come_later_is_reported(tmp_path: Path) -> None:
    runner = play(tmp_path, SlowWorld({1: NEVER}), "runner.max_epochs=2")
    lines = (runner.logger.folder / "metrics.jsonl").read_text().splitlines()
    carried = [json.loads(line).get("rollout/carried_groups") for line in lines]
    assert [value for value in carried if value is not None] == [1.0, 0.0]


@pytest.mark.parametrize("threshold", [1, 2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_all_groups_are_trained_on_once_within_the_bound(tmp_path: Path, seed: int, threshold: int) -> None:
    chance = random.Random(seed)
    slow = {number: chance.choice([0, 0, 1, 2, 3, NEVER]) for number in range(STEPS * BATCH)}
    world = SlowWorld(slow)
    play(tmp_path, world, threshold=threshold)
    assert sorted(number for groups in trained(world) for number in groups) == list(range(STEPS * BATCH))
    assert sorted(trained_in_order(world)) == asked_in_order(STEPS * BATCH)
    assert max(staleness(world)) <= threshold


@pytest.mark.parametrize(
    "dies", [("generate", 3, "rollout"), ("score", 7, "reward"), ("compute_advantages", 2, "reward")]
)
def test_a_death_loses_no_group_that_comes_later(tmp_path: Path, dies: tuple[str, int, str]) -> None:
    world = SlowWorld({1: 1, 6: 2}, dies)
    play(tmp_path, world, RESTART)
    assert not world.deaths
    assert sorted(number for groups in trained(world) for number in groups) == list(range(STEPS * BATCH))


def test_a_resumed_run_begins_with_what_was_to_come_later(tmp_path: Path) -> None:
    world = SlowWorld({1: NEVER})
    runner = play(tmp_path, world, "runner.save_interval=1", "runner.max_epochs=3", threshold=2)
    root = runner.logger.checkpoints.root
    assert json.loads((root / "global_step_2" / "data" / "prompts.json").read_text()) == {"position": 9, "again": [1]}
    assert json.loads((root / "global_step_3" / "data" / "prompts.json").read_text()) == {"position": 12}
    assert trained(world)[-1] == [1, 9, 10, 11]
    world = SlowWorld({})
    play(tmp_path / "again", world, f"runner.resume_dir={root / 'global_step_2'}", threshold=2)
    assert [step for step, _ in world.trained] == [3, 4, 5, 6]
    asked = dict(asked_in_order(STEPS * BATCH))
    assert trained_in_order(world) == [(n, asked[n]) for n in [1, *range(9, STEPS * BATCH)]]


@pytest.mark.parametrize(
    ("keys", "remedy"),
    [
        (("algorithm.staleness_threshold=null",), "staleness_threshold allows none. Set that to 1"),
        (("algorithm.staleness_threshold=0",), "staleness_threshold allows none. Set that to 1"),
        (("algorithm.staleness_threshold=1", "algorithm.max_num_gen_batches=2"), "not possible with"),
        (("algorithm.staleness_threshold=1", "algorithm.carry_over=0.001"), "groups that is none. Set it to 0.0"),
        (("algorithm.staleness_threshold=1", "algorithm.carry_over=1.5"), "carry_over"),
    ],
)
def test_what_contradicts_it_is_named(keys: tuple[str, ...], remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_cfg(load_recipe("tiny_math_grpo", [CARRY, *keys]))
    assert "algorithm.carry_over" in str(caught.value)
    assert remedy in str(caught.value)
