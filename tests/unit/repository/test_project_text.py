"""The repository speaks of the project alone: what only one machine or one conversation knows has no place in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from repository_tree import project_files, relative

OWN_NAME = Path(__file__).name
BINARY_SUFFIXES = {".png", ".jpg", ".gif", ".woff2", ".mp4", ".npz", ".pt", ".safetensors", ".ico", ".svg"}
FORBIDDEN = {
    "a path of one machine": re.compile(r"(?<![\w.~$}-])/(work|home|Users|root|tmp/bash\w*)/\w"),
    "a reference to a conversation": re.compile(r"\b(this|an?|the) (AI|chat|coding) (session|assistant)\b", re.I),
    "a reference to a tracker's entry": re.compile(r"\bissues? #?\d+\b", re.I),
    "a to-do without what is missing": re.compile(r"\b(TODO|FIXME|XXX)\b(?!\([\w-]+\): \S+ \S+)"),
}


def offences(text: str) -> list[str]:
    """Return what the lines of a text say that they should not."""
    return [
        f"{number}: {kind}: {line.strip()[:80]}"
        for number, line in enumerate(text.splitlines(), start=1)
        for kind, pattern in FORBIDDEN.items()
        if pattern.search(line)
    ]


def test_project_files_speak_of_the_project_alone() -> None:
    found = {}
    for path in project_files():
        if path.name in {OWN_NAME, "LICENSE"} or path.suffix in BINARY_SUFFIXES:
            continue
        lines = offences(path.read_text(encoding="utf-8"))
        if lines:
            found[relative(path)] = lines
    assert found == {}


@pytest.mark.parametrize(
    "text", ["see /home/ann/data", "written in this chat session", "closes issue 12", "# TODO", "# TODO: later"]
)
def test_forbidden_text_is_recognised(text: str) -> None:
    assert len(offences(text)) == 1


@pytest.mark.parametrize(
    "text",
    ["~/work/data", "$HOME/work/x", "a pytest session", "https://example.org/home/x", "TODO(agent): needs a GPU"],
)
def test_ordinary_text_passes(text: str) -> None:
    assert offences(text) == []
