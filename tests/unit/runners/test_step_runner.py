"""Interrupts and deaths at any moment of a step: what is saved, what is recorded, and that both agree."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlinf.errors import WorkerDiedError, WorkerError
from rlinf.runners.reasoning_runner import ReasoningRunner
from rlinf.runners.step_runner import Metrics, StepRunner
from rlinf.utils.signals import Terminated
from tests.unit.runners.conftest import ReadRecipe
from tests.unit.runners.reply_groups import Call, Group, death
from tests.unit.runners.text_world import RESTART, World, run

STEPS = [1, 2, 3, 4, 5, 6]


class Signalled(World):
    """Is sent a signal in the call of a method for a step: while its requests are on their way to the ranks."""

    def __init__(self, method: str, step: int, number: int, *deaths: tuple[str, int, str]) -> None:
        super().__init__(*deaths)
        self.signalled, self.number = (method, step), number

    def serve(self, call: Call) -> None:
        if self.signalled == (call.method, call.keys.get("step", call.keys.get("version"))):
            self.signalled = None
            os.kill(os.getpid(), self.number)
        super().serve(call)


def recorded_steps(runner: Any) -> list[int]:
    return [json.loads(line)["step"] for line in (runner.logger.folder / "metrics.jsonl").read_text().splitlines()]


def saved_steps(runner: Any) -> list[int]:
    return sorted(int(path.name.removeprefix("global_step_")) for path in runner.logger.checkpoints.root.glob("g*"))


def interrupt(folder: Path, world: World, *keys: str) -> Any:
    runner = run(folder, world, *keys, start=False)
    with pytest.raises(KeyboardInterrupt) as caught:
        runner.run()
    return runner, caught.type


@pytest.mark.parametrize(("number", "kind"), [(signal.SIGTERM, Terminated), (signal.SIGINT, KeyboardInterrupt)])
@pytest.mark.parametrize("method", ["run_training", "sync_model_from_actor"])
def test_the_step_that_an_interrupt_ends_is_saved_and_recorded(
    tmp_path: Path, method: str, number: int, kind: type[BaseException]
) -> None:
    world = Signalled(method, 4, number)
    runner, caught = interrupt(tmp_path, world)
    assert caught is kind
    assert [step for step, _ in world.trained] == STEPS[:4]
    assert saved_steps(runner) == [4]
    assert recorded_steps(runner) == STEPS[:4]
    again = run(tmp_path, World(), "runner.resume_dir=auto")
    assert recorded_steps(again) == STEPS


def test_the_record_of_an_interrupted_step_has_its_rollout_and_its_times(tmp_path: Path) -> None:
    runner, _ = interrupt(tmp_path, Signalled("run_training", 2, signal.SIGTERM))
    first, last = ((runner.logger.folder / "metrics.jsonl").read_text().splitlines())[-2:]
    missing = set(json.loads(first)) - set(json.loads(last))
    # What other groups had measured ended with them.
    assert {name for name in missing if not name.startswith("time/")} == set()
    assert json.loads(last)["time/step"] > 0


def test_a_step_is_recorded_once_when_its_checkpoint_is_interrupted(tmp_path: Path) -> None:
    world = World()
    runner = run(tmp_path, world, "runner.save_interval=2", start=False)
    save = runner.write_checkpoint

    def interrupted(folder: Path) -> Any:
        runner.write_checkpoint = save
        raise KeyboardInterrupt

    runner.write_checkpoint = interrupted
    with pytest.raises(KeyboardInterrupt):
        runner.run()
    assert (saved_steps(runner), recorded_steps(runner)) == ([2], [1, 2])


class Interrupted(World):
    """Is interrupted after a death, when a method is called for the given time since the beginning."""

    def __init__(self, method: str, count: int, death: tuple[str, int, str]) -> None:
        super().__init__(death)
        self.moment = (method, count)

    def serve(self, call: Call) -> None:
        if not self.deaths and (call.method, self.count(call.method)) == self.moment:
            self.moment = None
            raise KeyboardInterrupt
        super().serve(call)


def test_an_actor_that_is_being_restored_is_not_saved(tmp_path: Path) -> None:
    world = Interrupted("relaunch", 1, ("compute_advantages", 4, "actor"))
    runner, _ = interrupt(tmp_path, world, RESTART, "runner.save_interval=2")
    assert saved_steps(runner) == [2]


def test_a_training_that_died_is_forgotten_when_the_step_is_made_again(tmp_path: Path) -> None:
    world = Interrupted("compute_advantages", 3, ("run_training", 2, "actor"))
    runner, _ = interrupt(tmp_path, world, RESTART, "runner.save_interval=1")
    assert (saved_steps(runner), recorded_steps(runner)) == ([1], [1])


class TwoGroups(StepRunner):
    """A loop over two groups; chosen calls, counted over the run, end in the death of their group."""

    def __init__(self, cfg: Any, *deaths: int) -> None:
        self.num_calls, self.deaths = 0, deaths
        self.trained: list[int] = []
        groups = {name: Group(name, 1, lambda call, name=name: self.serve(name, call)) for name in ("actor", "rollout")}
        super().__init__(cfg, groups)  # type: ignore[arg-type]

    def serve(self, group: str, call: Call) -> None:
        number, self.num_calls = self.num_calls, self.num_calls + 1
        if number in self.deaths:
            if call.method == "relaunch":
                raise death(group)
            call.fail(death(group))
            return
        if call.method == "save_checkpoint":
            Path(call.args[0]).mkdir(parents=True)
            (Path(call.args[0]) / "state").write_text("saved")
        if call.method == "run_training":
            self.trained.append(call.keys["step"])
        if not call.future.done():
            # What is written in the background is never ready at once.
            call.give(call.keys["wait"] if call.method == "finish_checkpoint" else {})

    def generate_rollouts(self) -> Metrics:
        return {"rollout/calls": 1.0, **self.groups["rollout"].generate(step=self.step + 1).wait()[0]}

    def evaluate(self) -> Metrics:
        return {"eval/return": 1.0, **self.groups["rollout"].evaluate().wait()[0]}

    def throughput(self, step_seconds: float) -> Metrics:
        return {"time/steps_per_second": 1 / step_seconds}


def run_two_groups(cfg: Any, number: int, *deaths: int) -> TwoGroups:
    log = replace(cfg.runner.logger, experiment_name=f"run_{number}")
    cfg = replace(cfg, runner=replace(cfg.runner, logger=log, max_restarts=len(deaths)))
    runner = TwoGroups(cfg, *deaths)
    runner.run()
    return runner


@pytest.mark.parametrize("async_save", ["false", "true"], ids=["", "in the background"])
@pytest.mark.parametrize("following", [(), (1, 3)], ids=["alone", "again in recovery"])
def test_whichever_call_ends_in_a_death_each_step_is_evaluated_logged_and_saved_once(
    recipe: ReadRecipe, following: tuple[int, ...], async_save: str
) -> None:
    intervals = ("runner.val_check_interval=1", "runner.save_interval=1")
    cfg = recipe("runner.max_epochs=2", f"runner.async_save={async_save}", *intervals)
    undisturbed = run_two_groups(cfg, 0)
    assert undisturbed.trained == [1, 2]
    for number in range(undisturbed.num_calls):
        runner = run_two_groups(cfg, number + 1, number, *(number + later for later in following))
        # Deaths of both groups in one exchange are met as one.
        assert 1 <= runner.restarts <= 1 + len(following)
        assert recorded_steps(runner) == [0, 1, 2]
        records = [json.loads(line) for line in (runner.logger.folder / "metrics.jsonl").read_text().splitlines()]
        assert [record["eval/return"] for record in records] == [1.0] * 3
        assert all(record["rollout/calls"] == 1.0 and record["time/step"] > 0 for record in records[1:])
        assert saved_steps(runner) == [1, 2]
        assert runner.logger.is_saved(2)
        # Only the death of the actor undoes a step.
        assert sorted(set(runner.trained)) == [1, 2]


@pytest.mark.parametrize("dies", [None, "generate", "sync_model_from_actor", "sync_model_to_rollout", "run_training"])
def test_receivers_get_what_is_trained_alone_unless_some_are_new(recipe: ReadRecipe, dies: str | None) -> None:
    keys = ("runner.max_epochs=4", "runner.val_check_interval=-1", f"runner.logger.experiment_name=sync_{dies}")
    runner = TwoGroups(recipe(*keys, "runner.max_restarts=1", "runner.save_interval=1"))
    left = {} if dies is None else {"call": dies}

    def serve(name: str, call: Call, original: Any = runner.serve) -> None:
        if call.method == left.get("call") and runner.step == 2:
            del left["call"]
            call.fail(death(name))
        original(name, call)

    runner.serve = serve  # type: ignore[method-assign]
    runner.run()
    sent = [
        (call.keys["version"], call.keys["is_partial"])
        for call in runner.groups["actor"].calls  # type: ignore[attr-defined]
        if call.method == "sync_model_to_rollout"
    ]
    expected = [(0, False), (1, True), (2, True), (3, True), (4, True)]
    if dies == "sync_model_to_rollout":
        # The actor goes back to its checkpoint.
        expected[3:3] = [(1, False), (2, True)]
    elif dies is not None:
        expected.insert(3, (2, False))
    assert sent == expected


def test_other_failures_and_one_death_too_many_end_the_run(recipe: ReadRecipe) -> None:
    keys = ("runner.max_epochs=2", "runner.val_check_interval=-1", "runner.logger.experiment_name=too_many")
    with pytest.raises(WorkerDiedError):
        TwoGroups(recipe(*keys, "runner.max_restarts=1"), 3, 8).run()
    runner = TwoGroups(recipe(*keys, "runner.overwrite=true", "runner.max_restarts=1"))
    runner.groups["rollout"].on_call = lambda call: call.fail(WorkerError("out of memory"))  # type: ignore[attr-defined]
    with pytest.raises(WorkerError, match="out of memory"):
        runner.run()
    assert runner.restarts == 0


def test_methods_are_overridden_and_called_by_their_former_names_too(tmp_path: Path) -> None:
    calls = []

    class Former(ReasoningRunner):
        def update_rollout_weights(self) -> None:
            calls.append("weights")
            super().update_rollout_weights()  # type: ignore[misc]

        def collect_answers(self) -> Metrics:
            calls.append("rollout")
            return super().collect_answers()  # type: ignore[misc,no-any-return]

    world = World()
    run(tmp_path, world, "runner.max_epochs=2", make=Former)
    assert calls == ["weights", "rollout", "weights", "rollout", "weights"]
    assert [step for step, _ in world.trained] == [1, 2]
