"""What becomes of each published recipe, as a checked-in list: names, outcomes and reasons, no file of theirs.

``python -m tests.unit.cli.published_outcomes FOLDER`` writes the list anew from the folder ``examples`` of the
published repository.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from rlinf.cli.migrate_compose import compose_published, find_recipes
from rlinf.cli.migrate_recipe import migrate_recipe
from rlinf.errors import ConfigError

OUTCOMES_FILE = Path(__file__).with_suffix(".yaml")
FOLDER_VARIABLE = "RLINF_PUBLISHED_RECIPES"
"""Names the folder ``examples`` of the published repository."""


VLA_TYPES = frozenset(
    {"abot_m0", "dexbotic_dm0", "dexbotic_pi", "dreamzero", "evo1", "gr00t", "gr00t_n1d6", "gr00t_n1d7", "lingbotvla"}
    | {"openpi", "openpi_rlinf", "openvla", "openvla_oft", "starvla"}
)
"""Values of the published ``actor.model.model_type`` that are vision-language-action policies."""
NO_SIMULATORS = frozenset({None, "realworld", "d4rl", "diffusion"})


def read_outcomes() -> dict[str, dict[str, Any]]:
    """Return the checked-in list: by the recipe's path, its outcome and the reasons.

    Recipes that train a vision-language-action policy in a simulator have both: ``policy``, ``simulator``.
    """
    listed: dict[str, dict[str, Any]] = yaml.safe_load(OUTCOMES_FILE.read_text(encoding="utf-8"))
    return listed


def find_outcomes(folder: Path) -> dict[str, dict[str, Any]]:
    """Migrate all recipes of a folder; any error but the typed one passes through."""
    found: dict[str, dict[str, Any]] = {}
    for file in find_recipes(folder):
        name = file.relative_to(folder).as_posix()
        try:
            recipe = compose_published(file)
            result = migrate_recipe(recipe)
        except ConfigError:
            found[name] = {"outcome": "refused", "reasons": ["a preset of its defaults list is not there"]}
            continue
        reasons = {
            "complete": [],
            "reduced": sorted({key for key, _ in result.lost}),
            "fill in": sorted(result.to_fill_in),
            "adapter": sorted({what for _, what in result.unproven}),
            "no counterpart": sorted({f"{key}: {what}" for key, what in result.missing}),
            "problems": sorted(result.problems),
        }
        found[name] = {"outcome": result.outcome, "reasons": reasons[result.outcome]} | _trains(recipe)
    return found


def _trains(recipe: dict[str, Any]) -> dict[str, str]:
    """Return the vision-language-action policy and the simulator that it is trained in, where a recipe has both."""
    policy = ((recipe.get("actor") or {}).get("model") or {}).get("model_type")
    splits = (recipe.get("env") or {}).values()
    simulators = [split.get("env_type") for split in splits if isinstance(split, dict)]
    simulator = next((name for name in simulators if name not in NO_SIMULATORS), None)
    return {"policy": policy, "simulator": simulator} if policy in VLA_TYPES and simulator else {}


def main(folder: str) -> None:
    """Write the list."""
    head = "# What becomes of each published recipe; tests/unit/cli/published_outcomes.py writes it.\n"
    body = yaml.safe_dump(find_outcomes(Path(folder)), width=110)
    OUTCOMES_FILE.write_text(head + body, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
