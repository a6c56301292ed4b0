"""Checkpoints that the actor writes in the background: published when they are whole, never lost in silence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlinf.errors import CommTimeoutError, WorkerError
from rlinf.runners.checkpoint_writer import CheckpointWriter
from rlinf.runners.run_logger import RunLogger
from tests.unit.runners.conftest import ReadRecipe


class Actor:
    """Writes as many polls later as it is set to; ``error`` is what comes of the writing."""

    def __init__(self) -> None:
        self.polls_left = 0
        self.error: Exception | None = None
        self.waited: list[bool] = []

    def finish_checkpoint(self, *, wait: bool) -> Actor:
        self.waited.append(wait)
        self.is_finished = wait or self.polls_left == 0
        self.polls_left = max(0, self.polls_left - 1)
        return self

    def wait(self, timeout: float | None = None) -> list[bool]:
        if self.is_finished and self.error is not None:
            raise self.error
        return [self.is_finished, self.is_finished]


@pytest.fixture
def actor() -> Actor:
    return Actor()


@pytest.fixture
def logger(recipe: ReadRecipe, tmp_path: Path) -> Any:
    run = RunLogger(recipe("runner.save_interval=1", "runner.async_save=true", "runner.max_epochs=9"))
    with run:
        yield run


@pytest.fixture
def writer(logger: RunLogger, actor: Actor) -> CheckpointWriter:
    return CheckpointWriter(logger, actor, in_background=True)  # type: ignore[arg-type]


def write(folder: str) -> None:
    (Path(folder) / "actor").mkdir()
    (Path(folder) / "actor" / "state").write_text("saved")


def saved(logger: RunLogger) -> list[str]:
    return sorted(path.name for path in logger.checkpoints.root.glob("global_step_*"))


def test_a_checkpoint_is_published_once_all_ranks_have_written(
    writer: CheckpointWriter, logger: RunLogger, actor: Actor
) -> None:
    writer.save(1, {"eval/return": 3.0}, write)
    actor.polls_left = 2
    assert logger.is_saved(1), "it is not written twice"
    for expected in ([], [], ["global_step_1"], ["global_step_1"]):
        writer.publish(wait=False)
        assert saved(logger) == expected
    assert actor.waited == [True, False, False, False], "nothing is under way any more"
    assert '"eval/return": 3.0' in (logger.checkpoints.root / "global_step_1" / "runner.json").read_text()


def test_the_next_checkpoint_and_the_end_wait_for_the_former_one(
    writer: CheckpointWriter, logger: RunLogger, actor: Actor
) -> None:
    actor.polls_left = 100
    writer.save(1, {}, write)
    writer.save(2, {}, write)
    assert saved(logger) == ["global_step_1"]
    writer.publish(wait=True)
    assert saved(logger) == ["global_step_1", "global_step_2"]


@pytest.mark.parametrize("when", ["poll", "next", "end"])
def test_a_failed_write_is_an_error_and_the_former_checkpoint_stands(
    writer: CheckpointWriter, logger: RunLogger, actor: Actor, when: str
) -> None:
    writer.save(1, {}, write)
    writer.publish(wait=True)
    writer.save(2, {}, write)
    actor.error = WorkerError("the disk is full")
    attempt: dict[str, Callable[[], None]] = {
        "poll": lambda: writer.publish(wait=False),
        "next": lambda: writer.save(3, {}, write),
        "end": lambda: writer.publish(wait=True),
    }
    with pytest.raises(WorkerError, match="the disk is full"):
        attempt[when]()
    assert saved(logger) == ["global_step_1"]
    assert writer.pending is None


def test_a_run_that_fails_publishes_what_is_being_written_or_says_that_it_is_lost(
    writer: CheckpointWriter, logger: RunLogger, actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    monkeypatch.setattr(logger, "message", messages.append)
    writer.publish_last()
    writer.save(1, {}, write)
    writer.publish_last()
    assert (saved(logger), messages) == (["global_step_1"], [])
    for error in (WorkerError("the actor has failed"), CommTimeoutError("no answer")):
        writer.save(2, {}, write)
        actor.error = error
        writer.publish_last()
        assert messages.pop() == f"The checkpoint of step 2 is not written: {error}"
        actor.error = None
    assert saved(logger) == ["global_step_1"]


def test_what_a_dead_actor_was_writing_is_forgotten(
    writer: CheckpointWriter, logger: RunLogger, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    monkeypatch.setattr(logger, "message", messages.append)
    writer.save(1, {}, write)
    writer.publish(wait=True)
    writer.save(2, {}, write)
    writer.forget()
    logger.rewind()
    assert messages == ["The checkpoint of step 2 was being written, and is lost."]
    assert (logger.is_saved(1), logger.is_saved(2)) == (True, False)
    writer.save(2, {}, write)
    writer.publish(wait=True)
    assert saved(logger) == ["global_step_1", "global_step_2"]


def test_without_the_key_nothing_is_left_to_do_after_a_save(logger: RunLogger, actor: Actor) -> None:
    writer = CheckpointWriter(logger, actor, in_background=False)  # type: ignore[arg-type]
    writer.save(1, {}, write)
    assert saved(logger) == ["global_step_1"]
    writer.publish(wait=False)
    assert actor.waited == []


def test_an_interrupted_save_is_ended_before_the_next_one_begins(
    writer: CheckpointWriter, logger: RunLogger, actor: Actor
) -> None:
    def interrupted(folder: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        writer.save(1, {}, interrupted)
    assert not logger.is_saved(1)
    # The actor may have begun to write into the folder that is cleared now.
    writer.save(1, {}, write)
    assert actor.waited == [True, True]
