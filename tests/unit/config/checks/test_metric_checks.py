"""Names of metrics that a run will not produce are refused, with those that were meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from changed_recipes import assert_mended

# (changes to the base recipe, path at the start of the line, remedy within the line)
MISTAKES: list[tuple[dict[str, Any], str, str]] = [
    (
        {"runner": {"logger": {"wandb": {"group": "seeds"}}}},
        "runner.logger.wandb",
        "runner.logger.logger_backends does not hold wandb",
    ),
    (
        {"runner": {"val_check_interval": 5, "stop_at": {"success_once": 1}}},
        "runner.stop_at.success_once",
        "Did you mean 'eval/success_once'?",
    ),
    (
        {"runner": {"val_check_interval": 5, "stop_at": {"eval/retrun": 1}}},
        "runner.stop_at.eval/retrun",
        "Did you mean 'eval/return'?",
    ),
    (
        {"runner": {"val_check_interval": 5, "keep_best": "eval/sucess_once"}},
        "runner.keep_best",
        "Did you mean 'eval/success_once'?",
    ),
    (
        {"runner": {"val_check_interval": 5, "keep_best": "env/returns"}},
        "runner.keep_best",
        "Did you mean 'env/return'?",
    ),
]


@pytest.mark.parametrize(("changes", "path", "remedy"), MISTAKES, ids=lambda value: str(value)[:60])
def test_a_mistake_is_located_with_its_remedy(
    recipe: Callable[..., dict[str, Any]], changes: dict[str, Any], path: str, remedy: str
) -> None:
    assert_mended(recipe(changes), path, remedy)
