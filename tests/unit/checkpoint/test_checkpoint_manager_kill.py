"""A kill before every single file operation of a save: the last complete checkpoint is always found and loads."""

import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlinf.checkpoint import CheckpointManager, checkpoint_step
from rlinf.checkpoint.layout import scan

_KILLED = 77
# What changes a disk; a kill before a call that only looks is the same as one before the next of these.
_CHANGES = {"open", "write", "flush", "__exit__", "close", "fsync", "rename", "replace", "mkdir", "unlink", "remove"}
_CHANGES |= {"rmdir", "truncate", "utime", "symlink", "link"}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: these tests force some thousand files to the disk."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="rlinf_test_") as name:
        yield Path(name)


def save(manager: CheckpointManager, step: int, payload: str | None = None) -> Path:
    folder = manager.begin(step)
    (folder / "actor").mkdir()
    (folder / "actor" / "weights.bin").write_text(payload or f"weights of {step}")
    return manager.commit(step, {"step": step}, {"eval/success_once": 1.0 / step}, required=["actor"])


def killed_before_operation(number: int, action: Callable[[], Path] | Callable[[], None]) -> bool:
    """Run an action in a forked process that dies, without any clean-up, before its n-th file operation.

    Returns True if it died, False if it finished with fewer operations.
    """
    with warnings.catch_warnings():
        # The child only touches files and leaves through _exit, so locks of other threads do not matter.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        count = 0

        def on_call(_frame: object, event: str, function: Any) -> None:
            nonlocal count
            if event == "c_call" and function.__name__ in _CHANGES:
                if count == number:
                    os._exit(_KILLED)
                count += 1

        try:
            sys.setprofile(on_call)
            action()
            sys.setprofile(None)
        except BaseException:  # noqa: BLE001 - a forked test process must never return into pytest
            sys.setprofile(None)
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in {0, _KILLED}
    return status == _KILLED


def prepare_plain(root: Any) -> int:
    manager = CheckpointManager(root, keep=2)
    save(manager, 1)
    save(manager, 2)
    return 2


def prepare_leftovers(root: Any) -> int:
    prepare_plain(root)
    half = CheckpointManager(root).begin(3)
    (half / "actor").mkdir()
    (half / "actor" / "weights.bin").write_text("half")
    (root / ".trash_checkpoint_1").mkdir()
    (root / ".trash_checkpoint_1" / "x").write_text("x")
    (root / ".old_global_step_2").mkdir()
    return 2


def prepare_same_step(root: Any) -> int:
    save(CheckpointManager(root), 3, "former weights of 3")
    return 3


def prepare_half_written_of_same_name(root: Any) -> int:
    prepare_plain(root)
    (root / "global_step_3" / "actor").mkdir(parents=True)
    return 2


@pytest.mark.parametrize(
    "prepare", [prepare_plain, prepare_leftovers, prepare_same_step, prepare_half_written_of_same_name]
)
def test_kill_before_every_file_operation_of_a_save(folder: Path, prepare: Callable[..., Any]) -> None:
    origin = folder / "origin"
    before = prepare(origin)
    outcomes = []
    for number in range(2000):
        root = folder / "run"
        shutil.copytree(origin, root)
        died = killed_before_operation(number, lambda: save(CheckpointManager(root, keep=2), 3))  # noqa: B023
        manager = CheckpointManager(root, keep=2)
        path = manager.resolve("auto")
        step = checkpoint_step(path)
        assert step in {before, 3}
        former = "former weights of 3" if prepare is prepare_same_step else f"weights of {step}"
        weights = (path / "actor" / "weights.bin").read_text()
        assert weights in {former, f"weights of {step}"}
        outcomes.append(weights == "weights of 3")
        # The next run saves as if nothing had happened, and clears up.
        save(manager, 4)
        assert checkpoint_step(manager.resolve("auto")) == 4
        assert not [p.name for p in root.iterdir() if p.name.startswith(".")]
        shutil.rmtree(root)
        if not died:
            break
    assert not died
    assert len(outcomes) > 30
    # Up to one point in time the old checkpoint is found, from there on the new one.
    assert outcomes == sorted(outcomes)
    assert outcomes[0] is False
    assert outcomes[-1] is True


def test_kill_before_every_file_operation_of_retention_keeps_the_best(folder: Path) -> None:
    origin = folder / "origin"
    for step in (1, 2, 3):
        save(CheckpointManager(origin, keep=0), step)
    for number in range(2000):
        root = folder / "run"
        shutil.copytree(origin, root)
        manager = CheckpointManager(root, keep=1, keep_best="eval/success_once")
        died = killed_before_operation(number, lambda: save(manager, 4))  # noqa: B023
        steps = [checkpoint.step for checkpoint in scan(root)[0]]
        assert steps[0] == 1  # the best so far: its metric is 1 / step
        assert steps[-1] in {3, 4}
        shutil.rmtree(root)
        if not died:
            break
    assert steps == [1, 4]


def test_kill_while_a_checkpoint_is_marked_as_resumed(folder: Path) -> None:
    origin = folder / "origin"
    for step in (1, 2, 3):
        save(CheckpointManager(origin, keep=0), step)
    for number in range(500):
        root = folder / "run"
        shutil.copytree(origin, root)
        manager = CheckpointManager(root)
        died = killed_before_operation(number, lambda: manager.mark_resumed(root / "global_step_1"))  # noqa: B023
        assert manager.resolve("auto").name in {"global_step_1", "global_step_3"}
        assert [checkpoint.step for checkpoint in sorted(scan(root)[0], key=lambda c: c.step)] == [1, 2, 3]
        shutil.rmtree(root)
        if not died:
            break
    assert not died
