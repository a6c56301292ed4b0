"""The published recipes, where a folder of them is given; and the checked-in list of what becomes of them."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.unit.cli.published_outcomes import FOLDER_VARIABLE, find_outcomes, read_outcomes


def test_the_list_says_how_many_recipes_run_and_why_others_do_not() -> None:
    listed = read_outcomes()
    counts = Counter(entry["outcome"] for entry in listed.values())
    assert sum(counts.values()) == 225
    assert counts["problems"] == 0
    assert counts["complete"] + counts["reduced"] + counts["adapter"] + counts["fill in"] >= 184
    assert all(entry["reasons"] for entry in listed.values() if entry["outcome"] != "complete")


def test_recipes_of_vision_language_action_policies_in_simulators_are_told_one_by_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each is valid here, or says what it lacks; those whose simulator is a guest are adapters, unproven."""
    listed = {name: entry for name, entry in read_outcomes().items() if "policy" in entry}
    counts = Counter(entry["outcome"] for entry in listed.values())
    with capsys.disabled():
        sys.stdout.write(f"\n{len(listed)} published recipes of such policies in simulators: {dict(counts)}\n")
    assert len(listed) == 101
    assert counts["problems"] == 0
    assert counts["complete"] + counts["reduced"] + counts["fill in"] + counts["adapter"] >= 88
    without_reason = [name for name, entry in listed.items() if entry["outcome"] != "complete" and not entry["reasons"]]
    assert not without_reason
    native = {"libero", "maniskill", "metaworld", "calvin"}
    assert {entry["simulator"] for entry in listed.values() if entry["outcome"] == "complete"} <= native


@pytest.mark.skipif(
    FOLDER_VARIABLE not in os.environ,
    reason=f"{FOLDER_VARIABLE} names no folder; set it to `examples` of the published repository",
)
def test_published_recipes_migrate_as_listed() -> None:
    found, listed = find_outcomes(Path(os.environ[FOLDER_VARIABLE])), read_outcomes()
    # Recipes that were published after the list was written have no entry.
    different = {name: (entry, found.get(name)) for name, entry in listed.items() if found.get(name) != entry}
    assert not different
