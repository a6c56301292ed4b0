"""The communication benchmark runs through and reports every comparison it claims."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_communication_benchmark_reports_everything(tmp_path: Path) -> None:
    output = tmp_path / "comm.json"
    command = [sys.executable, str(REPO / "benchmarks" / "comm.py"), "--quick", "--output", str(output)]
    subprocess.run(command, check=True, timeout=280, env={**os.environ, "PYTHONPATH": str(REPO)})
    report = json.loads(output.read_text())
    for payload in ("1 KB bytes", "1 KB tensor", "1 MB tensor", "64 MB tensor"):
        assert {"rlinf", "pipe", "gloo", "memcpy", "time_vs_pipe", "speed_vs_memcpy"} <= set(
            report[payload]["round_trip"]
        )
        assert set(report[payload]["channel"]) == {"1+1", "4+4"}
        assert report[payload]["broadcast"]["time_4_vs_1"] > 0
    for payload in ("64 MB bytes", "64 MB bytearray", "64 MB array"):
        assert report[payload]["channel"]["1+1"]["speed_vs_memcpy"] > 0
    for size in ("1 MB", "64 MB"):
        assert {"speed_vs_gloo", "speed_vs_memcpy"} <= set(report["in place"][size])
    assert report["call"]["time_vs_ray"] > 0
    assert set(report["group_wait"]) == {"64 ranks", "256 ranks", "1024 ranks"}
    assert report["group_wait"]["1024 ranks"]["time_vs_queue"] > 0
