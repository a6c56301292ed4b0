"""All problems of a recipe are reported together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rlinf.config import validate_cfg
from rlinf.errors import ConfigError


def test_all_problems_are_reported_at_once(recipe: Callable[..., dict[str, Any]]) -> None:
    changes = {
        "actor.optim": {"lrr": 1, "lr": -1.0},
        "env.train.total_num_envs": "many",
        "actor.global_batch_size": "DELETE",
    }
    with pytest.raises(ConfigError) as caught:
        validate_cfg(recipe(changes))
    lines = str(caught.value).splitlines()
    assert lines[0] == "The recipe has 4 problems:"
    assert {line.split(":")[0].removeprefix("  - ") for line in lines[1:]} == {
        "actor.optim.lrr",
        "actor.optim.lr",
        "env.train.total_num_envs",
        "actor.global_batch_size",
    }
