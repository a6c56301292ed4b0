"""What results depend on besides the recipe: versions of packages, the renderer, and contents of files."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest
from builtin_configs import metaworld_config

from rlinf.envs.versions import hash_files, simulator_versions


def test_versions_are_those_of_what_the_environment_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("metaworld")
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    found = simulator_versions(metaworld_config())
    expected = {name: metadata.version(name) for name in ("gymnasium", "metaworld", "mujoco")}
    assert found == {**expected, "renderer": "osmesa"}


def test_the_same_files_have_the_same_hash_wherever_they_lie(tmp_path: Path) -> None:
    def folder(name: str, files: dict[str, str]) -> str:
        root = tmp_path / name
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
        return hash_files((file for file in root.rglob("*") if file.is_file()), root)

    first = folder("one", {"a": "1", "b/c": "2"})
    assert folder("two", {"b/c": "2", "a": "1"}) == first
    others = [
        {"a": "1", "b/d": "2"},
        {"a": "1", "d/c": "2"},
        {"a": "2", "b/c": "1"},
        {"a": "1"},
        {"a": "12", "b/c": ""},
    ]
    assert len({first, *(folder(f"other {number}", files) for number, files in enumerate(others))}) == 6
