"""``rlinf train``, ``rlinf eval`` and ``rlinf collect``: run a recipe by its name, from any folder."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from rlinf.cli.arguments import add_config_dir, add_overrides, find_config_dir
from rlinf.errors import ConfigError
from rlinf.registry import import_target
from rlinf.utils.signals import hear_interrupts

if TYPE_CHECKING:
    from rlinf.config.schema.root import RLinfConfig

_EVALUATE = "runner.only_eval=true"
OVERRIDES: dict[str, tuple[str, ...]] = {
    "train": (),
    "eval": (_EVALUATE,),
    "collect": (_EVALUATE, "env.eval.data_collection.enabled=true"),
}
"""What each command sets in the recipe."""
_LAUNCH = "rlinf.runners.launch:launch"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the three commands."""
    parser.add_argument("recipe", metavar="RECIPE", help="name of a recipe, or its file; see `rlinf list recipes`")
    parser.add_argument(
        "--quiet", action="store_true", help="print only warnings, errors and a last line with where the results are"
    )
    parser.add_argument(
        "-m",
        "--multirun",
        action="store_true",
        help="run every combination of values that commas separate: actor.seed=1,2,3",
    )
    parser.add_argument(
        "--metric", metavar="NAME", help="with -m: compare the runs by this metric; default: an evaluation's"
    )
    add_config_dir(parser)
    add_overrides(parser)


def run(args: argparse.Namespace) -> int:
    """Run the recipe to its end.

    An evaluation takes the newest checkpoint of the recipe's experiment, unless it is given other weights.

    Returns:
        The exit code: 0, or what ``launch`` returned.

    Raises:
        RLinfError: The recipe is wrong, something that it needs is missing, or the run failed.
    """
    quieten(args)
    if args.multirun:
        if args.command != "train":
            raise ConfigError(f"-m: rlinf {args.command} has no sweeps; name one run's recipe and weights.")
        from rlinf.cli.sweep import run_sweep

        return run_sweep(args)
    return _run_recipe(args)


def quieten(args: argparse.Namespace) -> None:
    """Let this process, and those that it starts, print what ``--quiet`` leaves."""
    if args.quiet:
        os.environ["RLINF_QUIET"] = "1"
        os.environ.setdefault("RLINF_LOG_LEVEL", "WARNING")


@hear_interrupts()
def _run_recipe(args: argparse.Namespace) -> int:
    from rlinf.runners.readiness import check_ready

    cfg = read_recipe(args.command, args.recipe, args.overrides, args.config_dir)
    check_ready(cfg)
    start: Any = import_target(_LAUNCH)
    result = start(cfg)
    return result if isinstance(result, int) else 0


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
