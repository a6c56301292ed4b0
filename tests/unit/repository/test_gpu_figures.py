"""The script for a lent GPU works without one in its dry mode, finds the tests, and skips what cannot run."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks import gpu

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("part", "shares"),
    [
        (
            "weights",
            [
                "publish_vs_copy_to_host",
                "load_vs_copy_from_host",
                "sync_vs_copy_on_device",
                "device_sync_vs_copy_on_device",
            ],
        ),
        ("update", ["teraflops_vs_matmul", "tokens_per_second"]),
        ("rollout", ["tokens_vs_memory_limit", "tokens_per_second"]),
    ],
)
def test_figures_are_compared_with_limits(part: str, shares: list[str]) -> None:
    pytest.importorskip("transformers")
    found = gpu.PARTS[part](gpu.DRY, CPU)
    assert all(found[share] > 0 for share in shares)


def test_attentions_are_compared_where_they_are_installed(monkeypatch: Any) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setattr(gpu.importlib.util, "find_spec", lambda name: None)
    found = gpu.PARTS["attention"](gpu.DRY, CPU)
    assert found["sdpa"]["tokens_per_second"] > 0
    assert found["flash_attention_2"] == {"skipped": "not installed: flash_attn"}


def test_engines_are_measured_awake_and_asleep(monkeypatch: Any) -> None:
    pytest.importorskip("transformers")
    found = gpu.PARTS["engines"](gpu.DRY, CPU)
    assert found["hf"]["graphs_tokens_per_second"] > 0
    assert found["hf"]["eager_sleep_frees_megabytes"] == 0
    monkeypatch.setattr(gpu.importlib.util, "find_spec", lambda name: None)
    skipped = gpu.PARTS["engines"](replace(gpu.DRY, turns=1), CPU)
    assert skipped == {name: {"skipped": f"not installed: {name}"} for name in ("vllm", "sglang")}


def test_limits_are_measured() -> None:
    assert all(value > 0 for value in gpu.measure_limits(gpu.DRY, CPU).values())


def test_all_files_with_gpu_tests_are_found() -> None:
    files = gpu.run_tests(gpu.DRY, CPU)["files"]
    assert "tests/unit/hybrid_engines/train/test_fsdp_on_gpu.py" in files
    assert "tests/unit/hybrid_engines/generation" in files, "its conftest marks an engine"
    assert "tests/unit/repository/test_gates_bite.py" not in files, "another marker's name begins alike"


def test_a_part_without_its_packages_says_which(monkeypatch: Any) -> None:
    monkeypatch.setitem(gpu.PACKAGES, "update", ("no_such_package", "torch"))
    found = gpu.run_alone("update", dry=True, deadline=time.monotonic() + 60)
    assert found == {"skipped": "not installed: no_such_package"}


def test_a_part_has_the_time_that_is_left(monkeypatch: Any) -> None:
    assert "over" in gpu.run_alone("limits", dry=True, deadline=time.monotonic() - 1)["skipped"]
    assert "took more" in gpu.run_alone("limits", dry=True, deadline=time.monotonic() + 0.05)["failed"]
    failing = SimpleNamespace(returncode=1, stderr="one\ntwo", stdout="")
    monkeypatch.setattr(gpu.subprocess, "run", lambda *_, **__: failing)
    assert gpu.run_alone("limits", dry=True, deadline=time.monotonic() + 60) == {"failed": ["one", "two"]}


def test_the_script_writes_what_it_prints(tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "gpu.json"
    monkeypatch.setattr(gpu.sys, "argv", ["gpu.py", "--dry", "--parts", "embodied", "tests", "--output", str(output)])
    monkeypatch.setattr(gpu, "run_alone", lambda part, **_: gpu.PARTS[part](gpu.DRY, CPU))
    gpu.main()
    report = json.loads(output.read_text())
    assert json.loads(capsys.readouterr().out) == report
    assert report["embodied"]["would_run"][-2:] == ["--only", "rlinf"]
    assert report["conditions"]["device"]
    assert set(report["conditions"]["missing"]) <= set(gpu.OPTIONAL)
