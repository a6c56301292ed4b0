"""What means nothing while all workers run at the same time is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from changed_recipes import assert_mended

# (changes to the base recipe, path at the start of the line, remedy within the line)
MISTAKES: list[tuple[dict[str, Any], str, str]] = [
    (
        {"algorithm.staleness_threshold": 1, "rollout": {"enable_offload": True}},
        "rollout.enable_offload",
        "run at the same time. Remove it",
    ),
]


@pytest.mark.parametrize(("changes", "path", "remedy"), MISTAKES, ids=lambda value: str(value)[:60])
def test_a_mistake_is_located_with_its_remedy(
    recipe: Callable[..., dict[str, Any]], changes: dict[str, Any], path: str, remedy: str
) -> None:
    assert_mended(recipe(changes), path, remedy)
