"""Every recipe that is shipped can be composed and run as it stands."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from rlinf.config import build_config, load_recipe, to_dict, validate_cfg
from rlinf.config.schema.root import EmbodiedConfig
from rlinf.runners.output_paths import with_run_paths

# A recipe of a plug-in needs it; examples/extend has a test of its own.
RECIPES = sorted(
    path for path in Path(__file__).parents[3].glob("examples/*/config/*.yaml") if "extend" not in path.parts
)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipe_is_valid_and_reversible(path: Path) -> None:
    cfg = validate_cfg(load_recipe(str(path)))
    assert build_config(to_dict(cfg)) == cfg
    assert cfg.runner.logger.experiment_name == path.stem
    assert path.read_text().startswith("# "), "a recipe opens with a comment that `rlinf list recipes` shows"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_what_a_run_records_is_its_recipe(path: Path) -> None:
    """``load_policy`` and whoever trains on read the recipe from the run's folder."""
    cfg = validate_cfg(load_recipe(str(path)))
    if isinstance(cfg, EmbodiedConfig):
        recorded = with_run_paths(cfg)
        assert validate_cfg(OmegaConf.create(OmegaConf.to_yaml(OmegaConf.create(to_dict(recorded))))) == recorded


def test_there_are_recipes() -> None:
    assert RECIPES
