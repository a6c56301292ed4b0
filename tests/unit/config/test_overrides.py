"""Values of Python arrive in a recipe as they are."""

from __future__ import annotations

from typing import Any

import pytest

from rlinf.config import load_recipe
from rlinf.config.overrides import as_overrides

RECIPE = "gym_cartpole_ppo_mlp"


@pytest.mark.parametrize(
    "value",
    [3, 1e-4, True, None, "plain", "two words", "", "it's", "a\\'b", "end\\", "1e3", "true", "a,b", "{x}", [1, "b c"]],
)
def test_values_of_python_arrive_as_they_are(value: Any) -> None:
    cfg = load_recipe(RECIPE, as_overrides({"runner.logger.project_name": value, "runner.stop_at": {"eval/return": 3}}))
    assert cfg.runner.logger.project_name == value
    assert cfg.runner.stop_at == {"eval/return": 3}


def test_overrides_may_be_strings() -> None:
    assert as_overrides(["a=1", "b=[2]"]) == ["a=1", "b=[2]"]
    assert as_overrides("a=1") == ["a=1"]
