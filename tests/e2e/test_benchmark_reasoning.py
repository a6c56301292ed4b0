"""The benchmark of reasoning runs through and reports every comparison it claims."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers")
pytest.importorskip("datasets")

REPO = Path(__file__).resolve().parents[2]
CASES = ("equal lengths", "own lengths")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_benchmark_of_reasoning_reports_everything(tmp_path: Path) -> None:
    output = tmp_path / "reasoning.json"
    # TRL belongs to the benchmark alone: without it, only our side runs.
    contenders = {"rlinf", "trl"} if importlib.util.find_spec("trl") else {"rlinf"}
    command = [sys.executable, str(REPO / "benchmarks/reasoning_throughput.py"), "--quick", "--output", str(output)]
    environment = {**os.environ, "PYTHONPATH": str(REPO)}
    subprocess.run([*command, "--contenders", *contenders], check=True, timeout=880, env=environment)
    report = json.loads(output.read_text())
    assert report["grpo"]["conditions"]["commit"]
    for entry in (report["grpo"][name] for name in CASES):
        assert set(entry["medians"]) == contenders
        assert ("speed_vs_trl" in entry) == ("trl" in contenders)
        for side in entry["medians"].values():
            parts = side["answering_seconds"] + side["training_seconds"]
            assert parts == pytest.approx(side["step_seconds"])
            assert 0 < side["share_answering"] < 1
            assert side["step_cpu_seconds"] > 0
    fixed, own = (report["grpo"][name]["medians"]["rlinf"]["answer_length"] for name in CASES)
    assert fixed == 8
    assert 4 < own < 40
    assert report["modes"]["asynchronous_speed_vs_in_turns"] > 0
    assert report["modes"]["overlap"] > 0
    assert report["weights"]["megabytes"] > 64
    assert report["weights"]["speed_vs_memcpy"] > 0
    assert report["rollout hf"]["requests"] >= 64
    assert report["rollout hf"]["speed_vs_engine"] > 0
