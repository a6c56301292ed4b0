"""The recipe that ``rlinf train``, ``rlinf eval`` and ``rlinf collect`` run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlinf.cli.arguments import find_config_dir

if TYPE_CHECKING:
    from rlinf.config.schema.root import RLinfConfig

_EVALUATE = "runner.only_eval=true"
OVERRIDES: dict[str, tuple[str, ...]] = {
    "train": (),
    "eval": (_EVALUATE,),
    "collect": (_EVALUATE, "env.eval.data_collection.enabled=true"),
}
"""What each command sets in the recipe."""


def read_recipe(command: str, recipe: str, overrides: list[str], config_dir: str | None) -> RLinfConfig:
    """Return the validated recipe of a command.

    Args:
        command: A key of ``OVERRIDES``.
        recipe: Name or file.
        overrides: Of the command line.
        config_dir: ``--config-dir``.

    Raises:
        ConfigError: It is wrong, or it steps no environments that episodes could be collected in.
    """
    from rlinf.cli.migrate import migration_hint
    from rlinf.config import load_recipe, validate_cfg
    from rlinf.runners.output_paths import with_newest_weights

    with migration_hint(recipe):
        changes = [*overrides, *OVERRIDES[command]]
        cfg = validate_cfg(load_recipe(recipe, changes, find_config_dir(config_dir)))
    return cfg if command == "train" else with_newest_weights(cfg)
