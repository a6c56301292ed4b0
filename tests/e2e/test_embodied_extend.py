"""The plug-in under examples/extend trains through Ray: its environment, model, algorithm and reward, and its loop."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import REPO, read_metrics

pytestmark = pytest.mark.timeout(300)


def test_the_plugin_trains(start_run: Callable[..., Any], one_node: str, tmp_path: Path) -> None:
    folder = REPO / "examples" / "extend"
    run = start_run(
        "point",
        f"--config-dir={folder / 'config'}",
        f"runner.logger.log_path={tmp_path / 'results'}",
        env={"RLINF_EXT_MODULE": "plugin", "PYTHONPATH": f"{folder}:{REPO}", "RAY_ADDRESS": one_node},
    )
    assert run.wait() == 0, run.output[-4000:]
    records = [record for record in read_metrics(tmp_path / "results" / "point") if record["step"] > 0]
    assert [record["step"] for record in records] == list(range(1, 31))
    assert records[-1]["env/return"] > records[0]["env/return"] + 1
    assert records[-1]["env/reward/effort"] <= 0
    assert records[-1]["env/reward/distance"] > records[0]["env/reward/distance"]
    assert not run.survivors()


def test_its_runner_drives_the_same_recipe(start_run: Callable[..., Any], one_node: None, tmp_path: Path) -> None:
    folder = REPO / "examples" / "extend"
    run = start_run(
        "point",
        f"--config-dir={folder / 'config'}",
        f"runner.logger.log_path={tmp_path / 'results'}",
        "runner.max_epochs=3",
        env={"RLINF_EXT_MODULE": "plugin", "PYTHONPATH": f"{folder}:{REPO}", "RAY_ADDRESS": one_node},
        entry=folder / "train_smoothed.py",
    )
    assert run.wait() == 0, run.output[-4000:]
    returns, smoothed = (
        [record[name] for record in read_metrics(tmp_path / "results" / "point") if record["step"] > 0]
        for name in ("env/return", "env/return_smoothed")
    )
    assert smoothed == pytest.approx([sum(returns[:n]) / n for n in (1, 2, 3)])
    assert not run.survivors()
