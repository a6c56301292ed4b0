"""What the tests of runners share: recipes whose results go below the test's folder, and checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlinf.checkpoint import CheckpointManager
from rlinf.config import load_recipe, validate_cfg

ReadRecipe = Callable[..., Any]


@pytest.fixture
def recipe(tmp_path: Path) -> ReadRecipe:
    """Return a function that reads a recipe whose results go below ``tmp_path``."""

    def read(*overrides: str, name: str = "gym_cartpole_ppo_mlp") -> Any:
        keys = [f"runner.logger.log_path={tmp_path}", "runner.logger.logger_backends=[]", "runner.logger.report=false"]
        return validate_cfg(load_recipe(name, [*keys, *overrides]))

    return read


def save_checkpoint(folder: Path, step: int) -> Path:
    """Write a checkpoint of an experiment."""
    manager = CheckpointManager(folder / "checkpoints")
    (manager.begin(step) / "actor").write_text("weights")
    return manager.commit(step, {})
