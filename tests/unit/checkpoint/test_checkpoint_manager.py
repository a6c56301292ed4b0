import errno
import json
import logging
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlinf.checkpoint import CheckpointManager, checkpoint_step
from rlinf.errors import CheckpointError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "run" / "checkpoints"


def save(
    manager: CheckpointManager, step: int, *, state: dict[str, float | list[int] | bool] | None = None, **metrics: float
) -> Path:
    folder = manager.begin(step)
    (folder / "actor").mkdir()
    (folder / "actor" / "w").write_text(str(step))
    return manager.commit(step, state or {"step": step}, {f"eval/{name}": value for name, value in metrics.items()})


def runner_state(path: Path | None) -> Any:
    return json.loads((path / "runner.json").read_text())["state"]


def names(root: Path) -> list[str]:
    return sorted((p.name for p in root.iterdir()), key=lambda name: (len(name), name))


def test_a_checkpoint_holds_what_was_written_and_the_runners_state(root: Path) -> None:
    manager = CheckpointManager(root)
    path = save(manager, 5, state={"best": -1.5, "steps": [1, 2], "limit": math.inf})
    assert path == root / "global_step_5"
    assert (path / "actor" / "w").read_text() == "5"
    assert runner_state(path) == {"best": -1.5, "steps": [1, 2], "limit": math.inf}
    assert checkpoint_step(path) == 5
    assert (root / "LATEST").read_text() == "global_step_5\n"
    assert names(root) == ["LATEST", "global_step_5"]


def test_nothing_is_visible_before_commit(root: Path) -> None:
    manager = CheckpointManager(root)
    manager.begin(1)
    assert manager.resolve("auto") is None
    assert CheckpointManager(root).resolve("auto") is None


def test_commit_needs_its_begin_the_workers_files_and_json(root: Path) -> None:
    manager = CheckpointManager(root)
    with pytest.raises(CheckpointError, match=r"begin\(1\)"):
        manager.commit(1, {})
    folder = manager.begin(1)
    with pytest.raises(CheckpointError, match=r"begin\(2\)"):
        manager.commit(2, {})
    for make in (lambda: None, (folder / "actor" / "empty").mkdir, (folder / "actor" / "file").touch):
        (folder / "actor").mkdir(exist_ok=True)
        make()
        with pytest.raises(CheckpointError, match=r"actor missing or empty.*log_path"):
            manager.commit(1, {}, required=["actor"])
    with pytest.raises(CheckpointError, match=r"absent missing or empty"):
        manager.commit(1, {}, required=["absent"])
    with pytest.raises(CheckpointError, match="not JSON.*checkpoint's folder"):
        manager.commit(1, {"x": object()})
    assert folder.is_dir()
    assert manager.resolve("auto") is None


def test_auto_takes_the_newest_complete_one_and_never_a_half_written(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager = CheckpointManager(root, keep=0)
    for step in (9, 10, 100):
        save(manager, step)
    assert manager.resolve("auto").name == "global_step_100"
    (root / "global_step_100" / "COMPLETE").unlink()
    (root / "global_step_999").mkdir()
    with caplog.at_level(logging.WARNING):
        assert manager.resolve("auto").name == "global_step_10"
    assert "global_step_999 is half-written" in caplog.text
    (root / "global_step_10" / "actor" / "w").write_text("")
    assert manager.resolve("auto").name == "global_step_9"
    shutil.rmtree(root / "global_step_9" / "actor")
    assert manager.resolve("auto") is None


def test_auto_does_not_depend_on_latest(root: Path) -> None:
    manager = CheckpointManager(root)
    save(manager, 1)
    save(manager, 2)
    for content in ("global_step_77\n", "global_step_1\n", ""):
        (root / "LATEST").write_text(content)
        assert manager.resolve("auto").name == "global_step_2"
    (root / "LATEST").unlink()
    assert manager.resolve("auto").name == "global_step_2"


def test_null_and_an_experiment_without_checkpoints_resolve_to_nothing(root: Path) -> None:
    assert CheckpointManager(root).resolve(None) is None
    assert CheckpointManager(root).resolve("auto") is None
    assert not root.exists()


def test_explicit_paths_in_every_spelling(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = CheckpointManager(root, keep=0)
    save(manager, 1)
    save(manager, 2)
    elsewhere = CheckpointManager(root.parent.parent / "other" / "checkpoints")
    monkeypatch.chdir(root.parent)
    for text in (
        f"{root}/global_step_1",
        f"{root}/global_step_1/",
        "checkpoints/global_step_1/",
        "./checkpoints//global_step_1",
    ):
        path = elsewhere.resolve(text)
        assert path.is_absolute()
        assert path == root / "global_step_1"
        assert checkpoint_step(path) == 1
    for text in (f"{root}", f"{root}/", f"{root.parent}/", ".", "checkpoints"):
        assert elsewhere.resolve(text).name == "global_step_2"
    assert manager.resolve("global_step_1") == root / "global_step_1"


def test_a_renamed_copy_of_a_checkpoint_is_one_and_knows_its_step(root: Path, tmp_path: Path) -> None:
    save(CheckpointManager(root), 42)
    shutil.copytree(root / "global_step_42", tmp_path / "best one")
    assert checkpoint_step(CheckpointManager(root).resolve(str(tmp_path / "best one"))) == 42


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("{root}/global_step_3", ["half-written", "COMPLETE", "global_step_1, global_step_2"]),
        ("{root}/global_step_3/", ["half-written", "global_step_2"]),
        ("{root}/global_step_7", ["does not exist", "global_step_1, global_step_2"]),
        ("/nowhere/x", ["does not exist", "global_step_2"]),
        ("{root}/global_step_1/actor", ["part of a checkpoint", "runner.resume_dir={root}/global_step_1"]),
        ("{empty}", ["no complete checkpoint", "runner.ckpt_path"]),
        ("  ", ["empty", "auto"]),
    ],
)
def test_paths_without_a_complete_checkpoint_are_refused_with_what_to_do(
    root: Path, tmp_path: Path, given: str, expected: list[str]
) -> None:
    manager = CheckpointManager(root, keep=0)
    save(manager, 1)
    save(manager, 2)
    (root / "global_step_3" / "actor").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=r"runner\.resume_dir") as error:
        manager.resolve(given.format(root=root, empty=tmp_path / "empty"))
    for part in expected:
        assert part.format(root=root) in str(error.value)


def test_damage_is_named_by_file_and_size(root: Path) -> None:
    manager = CheckpointManager(root)
    path = save(manager, 12)
    (path / "actor" / "w").write_text("1")
    with pytest.raises(CheckpointError, match=r"actor/w has 1 bytes.*lists 2 bytes"):
        manager.resolve(str(path))


def test_another_format_is_refused(root: Path) -> None:
    path = save(CheckpointManager(root), 1)
    record = json.loads((path / "COMPLETE").read_text())
    (path / "COMPLETE").write_text(json.dumps(record | {"format": 99}))
    with pytest.raises(CheckpointError, match="format 99"):
        CheckpointManager(root).resolve(str(path))


def test_retention_keeps_the_newest_and_the_best(root: Path) -> None:
    manager = CheckpointManager(root, keep=2, keep_best="eval/success_once")
    for step, success in ((10, 0.1), (20, 0.9), (30, 0.9), (40, math.nan), (50, 0.2), (60, None), (70, 0.3)):
        save(manager, step, **({} if success is None else {"success_once": success}))
    assert names(root) == ["LATEST", "global_step_30", "global_step_60", "global_step_70"]
    # Another process goes on with the same best.
    manager = CheckpointManager(root, keep=1, keep_best="eval/success_once")
    save(manager, 80, success_once=0.95)
    assert names(root) == ["LATEST", "global_step_80"]


def test_keep_zero_keeps_all(root: Path) -> None:
    manager = CheckpointManager(root, keep=0)
    for step in range(1, 6):
        save(manager, step)
    assert len(names(root)) == 6


def test_a_metric_that_no_save_measures_is_warned_about_once(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    manager = CheckpointManager(root, keep=1, keep_best="eval/succes")
    with caplog.at_level(logging.WARNING):
        for step in (1, 2):
            save(manager, step, success_once=1.0)
    (warning,) = {r.getMessage() for r in caplog.records if "eval/succes'" in r.getMessage()}
    assert "Did you mean 'eval/success_once'?" in warning
    assert len([r for r in caplog.records if r.getMessage() == warning]) == 1


def test_a_run_that_goes_back_to_an_earlier_step_keeps_what_it_saves_and_continues_from_it(root: Path) -> None:
    for step in (10, 20, 30):
        save(CheckpointManager(root, keep=3), step)
    manager = CheckpointManager(root, keep=3)
    manager.mark_resumed(manager.resolve(f"{root}/global_step_10"))
    assert manager.resolve("auto").name == "global_step_10"
    assert (root / "LATEST").read_text() == "global_step_10\n"
    save(manager, 15)
    assert manager.resolve("auto").name == "global_step_15"
    assert names(root) == ["LATEST", "global_step_10", "global_step_15", "global_step_30"]
    save(manager, 30, state={"second": True})
    assert runner_state(manager.resolve("auto")) == {"second": True}


def test_marking_a_checkpoint_of_another_experiment_changes_nothing(root: Path, tmp_path: Path) -> None:
    save(CheckpointManager(root), 1)
    other = CheckpointManager(tmp_path / "other" / "checkpoints")
    other.mark_resumed(root / "global_step_1")
    assert not other.root.exists()


def test_files_of_others_in_the_folder_are_left_alone(root: Path) -> None:
    root.mkdir(parents=True)
    for name in (".tmp_mine", "notes.txt", "global_step_x"):
        (root / name).write_text("mine")
    save(CheckpointManager(root, keep=1), 1)
    save(CheckpointManager(root, keep=1), 2)
    assert set(names(root)) == {".tmp_mine", "notes.txt", "global_step_x", "LATEST", "global_step_2"}


def test_everything_is_synced_before_complete_and_complete_before_the_name(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = CheckpointManager(root)
    folder = manager.begin(1)
    (folder / "w").write_text("1")
    events = []
    real_fsync, real_rename, real_replace = os.fsync, os.rename, os.replace

    def fsync(descriptor: int) -> None:
        events.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real_fsync(descriptor)

    def rename(source: Any, target: Any) -> None:
        events.append(f"name {os.path.basename(target)}")
        real_rename(source, target)

    def replace(source: Any, target: Any) -> None:
        events.append(f"name {os.path.basename(target)}")
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", rename)
    monkeypatch.setattr(os, "replace", replace)
    manager.commit(1, {})
    order = [
        events.index(f"{folder}/w"),
        events.index("name COMPLETE"),
        events.index("name global_step_1"),
        events.index("name LATEST"),
    ]
    assert events.index(f"{folder}/runner.json") < order[1]
    assert order == sorted(order)
    assert str(root) in events[order[2] : order[3]]


@pytest.fixture
def undeletable(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return a set of names that cannot be deleted: as files that another process holds on a network file system."""
    held = set()
    monkeypatch.setattr(logging.getLogger("rlinf"), "propagate", True)

    def guard(function: Callable[..., None]) -> Callable[..., Any]:
        def call(path: str | Path, *args: Any, **keys: Any) -> None:
            if os.path.basename(path) in held:
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))
            return function(path, *args, **keys)

        return call

    monkeypatch.setattr(os, "unlink", guard(os.unlink))
    return held


def test_a_checkpoint_that_cannot_be_deleted_ends_no_save_and_costs_no_other(
    root: Path, undeletable: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    undeletable.add("w")
    manager = CheckpointManager(root, keep=1)
    with caplog.at_level(logging.WARNING):
        for step in (1, 2, 3):
            save(manager, step)
    assert "cannot be deleted" in caplog.text
    assert "busy" in caplog.text
    assert manager.resolve("auto").name == "global_step_3"
    assert [name for name in names(root) if not name.startswith(".trash")] == ["LATEST", "global_step_3"]
    undeletable.clear()
    save(CheckpointManager(root, keep=1), 4)
    assert names(root) == ["LATEST", "global_step_4"]


def test_a_checkpoint_whose_replacement_was_interrupted_comes_back(root: Path) -> None:
    save(CheckpointManager(root), 3)
    os.rename(root / "global_step_3", root / ".old_global_step_3")
    manager = CheckpointManager(root)
    manager.begin(4)
    assert manager.resolve("auto").name == "global_step_3"
    assert not (root / ".old_global_step_3").exists()


def test_an_undeletable_file_keeps_no_other_on_the_disk(root: Path, undeletable: set[str]) -> None:
    manager = CheckpointManager(root, keep=1)
    folder = manager.begin(1)
    for name in ("a", "w", "z"):
        (folder / name).write_text("weights")
    manager.commit(1, {})
    undeletable.add("w")
    save(manager, 2)
    (trash,) = root.glob(".trash*")
    assert [path.name for path in trash.rglob("*")] == ["w"]


def test_a_checkpoint_that_cannot_be_moved_away_stays_and_ends_no_save(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    manager = CheckpointManager(root, keep=1)
    save(manager, 1)
    rename = os.rename

    def busy(source: Any, target: Any) -> None:
        if ".trash" in os.path.basename(target):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        rename(source, target)

    monkeypatch.setattr(os, "rename", busy)
    monkeypatch.setattr(logging.getLogger("rlinf"), "propagate", True)
    with caplog.at_level(logging.WARNING):
        save(manager, 2)
    assert "global_step_1 cannot be deleted" in caplog.text
    assert names(root) == ["LATEST", "global_step_1", "global_step_2"]


def test_what_a_killed_run_left_and_cannot_be_deleted_ends_no_save(
    root: Path, undeletable: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    (CheckpointManager(root).begin(5) / "w").write_text("half")
    undeletable.add("w")
    with caplog.at_level(logging.WARNING):
        path = CheckpointManager(root).begin(5)
    assert list(path.iterdir()) == []
    assert "cannot be deleted" in caplog.text


def test_retention_that_cannot_tell_the_best_drops_nothing_and_ends_no_save(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager = CheckpointManager(root, keep=1, keep_best="eval/return")
    first = save(manager, 1, **{"return": 1.0})
    text = (first / "runner.json").read_text()
    (first / "runner.json").write_text(text.replace('"format": 1', '"format": 9'))
    with caplog.at_level(logging.WARNING):
        save(manager, 2)
    assert "no checkpoint is dropped" in caplog.text
    assert {"global_step_1", "global_step_2"} <= set(names(root))


def test_negative_numbers_are_refused(root: Path) -> None:
    with pytest.raises(CheckpointError, match="keep_checkpoints"):
        CheckpointManager(root, keep=-1)
    with pytest.raises(CheckpointError, match="step"):
        CheckpointManager(root).begin(-1)
