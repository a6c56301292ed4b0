"""Interrupts and deaths at any moment of a step: what is saved, what is recorded, and that both agree."""

from __future__ import annotations

import json
import os
import signal

import pytest

from rlinf.utils.signals import Terminated
from tests.unit.runners.text_world import RESTART, World, run

STEPS = [1, 2, 3, 4, 5, 6]


class Signalled(World):
    """Is sent a signal in the call of a method for a step: while its requests are on their way to the ranks."""

    def __init__(self, method, step, number, *deaths):
        super().__init__(*deaths)
        self.signalled, self.number = (method, step), number

    def serve(self, call):
        if self.signalled == (call.method, call.keys.get("step", call.keys.get("version"))):
            self.signalled = None
            os.kill(os.getpid(), self.number)
        super().serve(call)


def recorded_steps(runner):
    return [json.loads(line)["step"] for line in (runner.session.folder / "metrics.jsonl").read_text().splitlines()]


def saved_steps(runner):
    return sorted(int(path.name.removeprefix("global_step_")) for path in runner.session.checkpoints.root.glob("g*"))


def interrupt(folder, world, *keys):
    runner = run(folder, world, *keys, start=False)
    with pytest.raises(KeyboardInterrupt) as caught:
        runner.run()
    return runner, caught.type


@pytest.mark.parametrize(("number", "kind"), [(signal.SIGTERM, Terminated), (signal.SIGINT, KeyboardInterrupt)])
@pytest.mark.parametrize("method", ["run_training", "sync_model_from_actor"])
def test_the_step_that_an_interrupt_ends_is_saved_and_recorded(tmp_path, method, number, kind):
    world = Signalled(method, 4, number)
    runner, caught = interrupt(tmp_path, world)
    assert caught is kind
    assert [step for step, _ in world.trained] == STEPS[:4]
    assert saved_steps(runner) == [4]
    assert recorded_steps(runner) == STEPS[:4]
    again = run(tmp_path, World(), "runner.resume_dir=auto")
    assert recorded_steps(again) == STEPS


def test_the_record_of_an_interrupted_step_has_its_rollout_and_its_times(tmp_path):
    runner, _ = interrupt(tmp_path, Signalled("run_training", 2, signal.SIGTERM))
    first, last = ((runner.session.folder / "metrics.jsonl").read_text().splitlines())[-2:]
    missing = set(json.loads(first)) - set(json.loads(last))
    # What other groups had measured ended with them.
    assert {name for name in missing if not name.startswith("time/")} == set()
    assert json.loads(last)["time/step"] > 0


def test_a_step_is_recorded_once_when_its_checkpoint_is_interrupted(tmp_path):
    world = World()
    runner = run(tmp_path, world, "runner.save_interval=2", start=False)
    save = runner.write_checkpoint

    def interrupted(folder):
        runner.write_checkpoint = save
        raise KeyboardInterrupt

    runner.write_checkpoint = interrupted
    with pytest.raises(KeyboardInterrupt):
        runner.run()
    assert (saved_steps(runner), recorded_steps(runner)) == ([2], [1, 2])


class Interrupted(World):
    """Is interrupted after a death, when a method is called for the given time since the beginning."""

    def __init__(self, method, count, death):
        super().__init__(death)
        self.moment = (method, count)

    def serve(self, call):
        if not self.deaths and (call.method, self.count(call.method)) == self.moment:
            self.moment = None
            raise KeyboardInterrupt
        super().serve(call)


def test_an_actor_that_is_being_restored_is_not_saved(tmp_path):
    world = Interrupted("relaunch", 1, ("compute_advantages", 4, "actor"))
    runner, _ = interrupt(tmp_path, world, RESTART, "runner.save_interval=2")
    assert saved_steps(runner) == [2]


def test_a_training_that_died_is_forgotten_when_the_step_is_made_again(tmp_path):
    world = Interrupted("compute_advantages", 3, ("run_training", 2, "actor"))
    runner, _ = interrupt(tmp_path, world, RESTART, "runner.save_interval=1")
    assert (saved_steps(runner), recorded_steps(runner)) == ([1], [1])
