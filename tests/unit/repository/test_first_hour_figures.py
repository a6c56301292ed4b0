"""What the first-hour benchmark counts: processes, packages with all that they need, and the first step alone."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from repository_tree import ROOT

from benchmarks import first_hour


def make_package(site: Path, name: str, requires: tuple[str, ...] = (), extras: tuple[str, ...] = ()) -> None:
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0"]
    lines += [f"Provides-Extra: {extra}" for extra in extras] + [f"Requires-Dist: {text}" for text in requires]
    (info / "METADATA").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (site / f"{name}.py").write_bytes(b"#" * 1000)
    (info / "RECORD").write_text(f"{name}.py,,\n", encoding="utf-8")


def test_packages_are_counted_with_all_they_need_and_extras_only_where_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_package(tmp_path, "first_a", ('first_b[fast]>=1; python_version > "3"', 'gone; extra == "x"'), ("x",))
    make_package(tmp_path, "first_b", ('first_c; extra == "fast"', 'gone; sys_platform == "win32"'), ("fast",))
    make_package(tmp_path, "first_c", ("first-a",))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert first_hour.needed_packages("first_a") == {"first-a", "first-b", "first-c"}
    assert first_hour.needed_packages("first_b") == {"first-b"}
    assert first_hour.installed_bytes("first_c") == 1000
    with pytest.raises(metadata.PackageNotFoundError, match="gone"):
        first_hour.needed_packages("first_a[x]")


def test_the_benchmark_prints_what_is_asked_as_json() -> None:
    command = [sys.executable, "benchmarks/first_hour.py", "--parts", "imports", "size", "--processes", "1"]
    report = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    commands = {"rlinf plan gym_cartpole_ppo_mlp", "python -c pass"}
    assert set(report["imports"]) == {*first_hour.IMPORTS, *commands}
    assert all(report["imports"][command] > 0 for command in commands)
    assert {"torch", "ray"} <= set(report["size"]["largest_megabytes"])
    assert "mujoco" not in report["size"]["largest_megabytes"]
    assert report["size"]["extras_add"]["video"]["packages"] > 0
    assert "first_step" not in report


def test_metrics_count_from_the_first_step_on(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.jsonl"
    assert not first_hour._has_first_step(metrics)
    metrics.write_text(json.dumps({"step": 0, "eval/return": 1.0}) + "\n", encoding="utf-8")
    assert not first_hour._has_first_step(metrics)
    metrics.write_text(json.dumps({"step": 1, "time_seconds": 1.0}) + "\n", encoding="utf-8")
    assert first_hour._has_first_step(metrics)


@pytest.mark.skipif(
    not first_hour.RESULTS.is_file(), reason="not measured yet: python benchmarks/first_hour.py --install --save"
)
def test_the_committed_result_has_every_part() -> None:
    report = json.loads(first_hour.RESULTS.read_text(encoding="utf-8"))
    assert set(first_hour.PARTS) <= set(report)
    assert report["recipe"] == first_hour.RECIPE
    assert report["installation"]["packages"] == report["size"]["packages"]
    assert report["first_step"]["first_message_seconds"] <= report["first_step"]["first_step_seconds"]
