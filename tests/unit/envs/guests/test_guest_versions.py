"""Versions are told from an adapter's source; neither it nor its simulator is imported for that."""

from pathlib import Path

import numpy as np
import pytest

from rlinf.envs.guests.guest_versions import installed_versions, named_packages


def test_packages_are_those_that_the_adapter_names() -> None:
    assert named_packages("calvin") == ["pybullet"]
    assert installed_versions("guest_simulator") == {"numpy": np.__version__, "no-such-simulator": ""}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("raise ImportError\nPACKAGES = ['one', 'two']\n", ["one", "two"]),
        ("OTHER = ('one',)\n", []),
        ("def make(:\n", []),
        (None, []),
    ],
)
def test_the_source_is_read_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str | None, expected: list[str]
) -> None:
    if source is not None:
        (tmp_path / "adapter_to_read.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    assert named_packages("adapter_to_read") == expected
