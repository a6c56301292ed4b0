"""The check accepts what is written, and finds what does not fit the format."""

import json
from pathlib import Path

import pytest
from lerobot_episodes import write

from rlinf.data.datasets.lerobot import check_dataset
from rlinf.errors import DatasetError


def test_the_check_finds_what_does_not_fit(tmp_path: Path) -> None:
    root = write(tmp_path / "x")
    info = json.loads((root / "meta/info.json").read_text())
    del info["features"]["task_index"]
    info |= {"total_frames": 14, "fps": 20}
    (root / "meta/info.json").write_text(json.dumps(info))
    with pytest.raises(DatasetError) as caught:
        check_dataset(root)
    for problem in ("'task_index' is None", "info.json says 14", "columns"):
        assert problem in str(caught.value)
