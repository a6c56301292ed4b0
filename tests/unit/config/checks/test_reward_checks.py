"""Rewards that cannot train anything are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from changed_recipes import REWARD, assert_mended

# (changes to the base recipe, path at the start of the line, remedy within the line)
MISTAKES: list[tuple[dict[str, Any], str, str]] = [
    (REWARD | {"runner.task_type": "offline"}, "reward", "not used by task_type=offline"),
    (REWARD | {"reward.rewards": {}}, "reward.rewards", "nothing would be learned"),
    (
        REWARD | {"reward.rewards.env": {"reward_type": "api", "url": "localhost", "obs_keys": []}},
        "reward.rewards.env.url",
        "begins with http://",
    ),
]


@pytest.mark.parametrize(("changes", "path", "remedy"), MISTAKES, ids=lambda value: str(value)[:60])
def test_a_mistake_is_located_with_its_remedy(
    recipe: Callable[..., dict[str, Any]], changes: dict[str, Any], path: str, remedy: str
) -> None:
    assert_mended(recipe(changes), path, remedy)
