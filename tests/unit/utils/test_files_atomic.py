import os
import resource
from pathlib import Path
from typing import Any, NoReturn

import pytest

from rlinf.utils.files import commit_folder, fsync_tree, remove_folder, write_atomic


def test_write_atomic_replaces_content_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    write_atomic(path, "old")
    write_atomic(path, b"new \xff")
    assert path.read_bytes() == b"new \xff"
    assert os.listdir(tmp_path) == ["state.json"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_write_atomic_that_fails_keeps_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "state.json"
    write_atomic(path, "old")

    def fail(*_args: Any, **_kwargs: Any) -> NoReturn:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="No space"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["state.json"]


def test_write_atomic_syncs_the_file_before_the_rename_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        calls.append(("fsync", os.readlink(f"/proc/self/fd/{descriptor}")))
        real_fsync(descriptor)

    def replace(source: Any, target: Any) -> None:
        calls.append(("replace", str(source)))
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    write_atomic(tmp_path / "x", "content")
    temporary = calls[1][1]
    assert calls == [("fsync", temporary), ("replace", temporary), ("fsync", str(tmp_path))]


def test_commit_folder_syncs_every_file_first_and_moves_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary, final = tmp_path / "tmp", tmp_path / "final"
    (temporary / "a" / "b").mkdir(parents=True)
    (temporary / "a" / "b" / "deep").write_text("1")
    (temporary / "top").write_text("2")
    synced = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), tmp_path))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    commit_folder(temporary, final)
    assert sorted(synced) == sorted(["tmp/a/b/deep", "tmp/a/b", "tmp/a", "tmp/top", "tmp", "."])
    assert synced[-1] == "."
    assert (final / "a" / "b" / "deep").read_text() == "1"
    assert not temporary.exists()


def test_commit_folder_refuses_to_replace(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "final").mkdir()
    with pytest.raises(FileExistsError, match="move it away"):
        commit_folder(tmp_path / "tmp", tmp_path / "final")
    assert (tmp_path / "tmp").exists()


def test_fsync_tree_skips_dangling_links(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    fsync_tree(tmp_path)
    assert (tmp_path / "link").is_symlink()


def test_a_file_that_does_not_fit_on_the_disk_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(OSError, match=f"{path}'"):
            write_atomic(path, "x" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [found.name for found in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "old"


def test_remove_folder_never_shows_a_half_removed_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, trash = tmp_path / "folder", tmp_path / ".trash"
    folder.mkdir()
    (folder / "file").write_text("x")

    def killed(_path: object, **_keys: Any) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("shutil.rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        remove_folder(folder, trash)
    assert not folder.exists()
    assert (trash / "file").exists()
