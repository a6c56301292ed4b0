"""Events that do not fit on the disk name their file."""

from pathlib import Path

import pytest
from logged_rows import full_disk

from rlinf.telemetry.events import EventLog


def test_an_event_that_does_not_fit_on_the_disk_names_its_file(tmp_path: Path) -> None:
    with full_disk(100), pytest.raises(OSError, match="events.jsonl"):
        EventLog(tmp_path).add("note", "x" * 1000)
