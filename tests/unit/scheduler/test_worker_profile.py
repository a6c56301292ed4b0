"""A worker is profiled between start and stop."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlinf.config.schema.cluster import ProfilingConfig
from tests.unit.scheduler.traced_workers import Traced


def test_a_worker_is_profiled_between_start_and_stop(launch: Callable[..., Any], tmp_path: Path) -> None:
    group = launch(Traced.create_group(), ranks=1)
    path = tmp_path / "profile" / "p.json"
    group.start_profile(str(path), ProfilingConfig(record_shapes=True)).wait()
    group.multiply(16).wait()
    group.stop_profile().wait()
    group.stop_profile().wait()
    events = json.loads(path.read_text())["traceEvents"]
    assert any(event.get("name") == "aten::mm" for event in events)
    assert [entry.name for entry in path.parent.iterdir()] == ["p.json"]
