"""``rlinf train``, ``rlinf eval`` and ``rlinf collect``: run a recipe by its name, from any folder."""

from __future__ import annotations

import argparse
import os
from typing import Any

from rlinf.cli.arguments import add_config_dir, add_overrides
from rlinf.cli.command_recipe import read_recipe
from rlinf.errors import ConfigError
from rlinf.registry import import_target
from rlinf.utils.signals import hear_interrupts

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
