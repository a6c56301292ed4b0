"""Callbacks are called after steps and checkpoints, and can end a run, which then has a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from rlinf.runners.callbacks import Callback, CallbackList
from tests.unit.runners.text_world import World, run


class Recorder(Callback):
    """Notes what it is called with, and ends the run after a step."""

    def __init__(self, last: int | None = None) -> None:
        self.last, self.steps, self.folders = last, list[int](), list[Path]()

    def on_step(self, step: int, metrics: Mapping[str, float]) -> bool | None:
        assert metrics["time/step"] >= 0
        self.steps.append(step)
        return step != self.last

    def on_checkpoint(self, step: int, folder: Path) -> None:
        assert (folder / "COMPLETE").is_file()
        assert folder.name == f"global_step_{step}"
        self.folders.append(folder)


@pytest.mark.parametrize("is_background", [False, True])
def test_steps_and_checkpoints_are_reported(tmp_path: Path, is_background: bool) -> None:
    recorder = Recorder()
    runner = run(tmp_path, World(), "runner.save_interval=4", start=False)
    runner.checkpoints._in_background = is_background
    runner.actor.finish_checkpoint = lambda **_: Written()
    runner.add_callbacks([recorder])
    runner.run()
    assert recorder.steps == [1, 2, 3, 4, 5, 6]
    assert [folder.name for folder in recorder.folders] == ["global_step_4", "global_step_6"]


class Written:
    """The call of an actor that has written its checkpoint."""

    def wait(self, timeout: float | None = None) -> list[bool]:
        return [True]


def test_a_callback_ends_the_run_after_a_checkpoint(tmp_path: Path) -> None:
    recorder, world = Recorder(last=3), World()
    runner = run(tmp_path, world, start=False)
    runner.add_callbacks([recorder])
    runner.run()
    assert [step for step, _ in world.trained] == recorder.steps == [1, 2, 3]
    assert [folder.name for folder in recorder.folders] == ["global_step_3"]


def test_all_callbacks_are_called_also_after_one_that_ends_the_run() -> None:
    seen: list[tuple[int, float]] = []

    def note(step: int, metrics: Mapping[str, float]) -> None:
        seen.append((step, metrics["loss"]))

    assert CallbackList([note]).on_step(1, {"loss": 2.0})
    assert not CallbackList([lambda *_: False, note]).on_step(2, {"loss": 1.0})
    assert CallbackList([lambda *_: 0]).on_step(3, {}), "only False ends a run"
    assert seen == [(1, 2.0), (2, 1.0)]


def test_an_exception_of_a_callback_ends_the_run(tmp_path: Path) -> None:
    def fail(step: int, metrics: Mapping[str, float]) -> None:
        raise ZeroDivisionError(step)

    runner = run(tmp_path, World(), start=False)
    runner.add_callbacks([fail])
    with pytest.raises(ZeroDivisionError):
        runner.run()
