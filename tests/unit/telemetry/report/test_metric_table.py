"""Only numbers are metrics."""

import json
from pathlib import Path

from rlinf.telemetry.report.metric_table import read_metrics


def test_only_numbers_are_metrics(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    values = {"a": 1, "none": None, "flag": True, "text": "x", "huge": 10**400}
    path.write_text(json.dumps({"step": 0, "time_seconds": 0.5, **values}) + "\n")
    columns = read_metrics(path).columns
    assert set(columns) == {"a", "none", "huge"}
    assert [column.values[0] != column.values[0] for column in columns.values()] == [False, True, True]
