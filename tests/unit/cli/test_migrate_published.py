"""The published recipes, where a folder of them is given; and the checked-in list of what becomes of them."""

from __future__ import annotations

import os
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


@pytest.mark.skipif(
    FOLDER_VARIABLE not in os.environ,
    reason=f"{FOLDER_VARIABLE} names no folder; set it to `examples` of the published repository",
)
def test_published_recipes_migrate_as_listed() -> None:
    found, listed = find_outcomes(Path(os.environ[FOLDER_VARIABLE])), read_outcomes()
    # Recipes that were published after the list was written have no entry.
    different = {name: (entry, found.get(name)) for name, entry in listed.items() if found.get(name) != entry}
    assert not different
