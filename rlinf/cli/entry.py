"""The entry of the example scripts: load and validate a recipe first, then import what runs it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rlinf.cli.arguments import add_config_dir, add_overrides, find_config_dir, parse_mixed
from rlinf.cli.errors import run_and_report
from rlinf.config.registries import task_types
from rlinf.errors import ConfigError
from rlinf.registry import import_target
from rlinf.utils.signals import hear_interrupts

if TYPE_CHECKING:
    from rlinf.config.schema.root import RLinfConfig

__all__ = ["run_and_report", "run_entry"]

_ASYNCHRONOUS = "examples/embodiment/run_embodiment.sh or examples/embodiment/train_async.py"
"""What runs embodied recipes with ``algorithm.staleness_threshold``."""


def run_entry(
    task_type: str,
    launch: str,
    argv: Sequence[str] | None = None,
    *,
    asynchronous: bool | None = False,
    also: Sequence[str] = (),
) -> int:
    """Run the recipe that the command line names, and return the process's exit code.

    The recipe is validated, and this machine looked at, before ``launch`` is imported, so that a mistake is reported
    without waiting for torch and Ray: 1 after a typed error, 130 after Ctrl-C, 143 after SIGTERM, whenever it comes.

    Args:
        task_type: ``runner.task_type`` of the recipes that the script runs.
        launch: ``"package.module:function"``; called with the ``RLinfConfig``; an integer it returns is the
            exit code.
        argv: Arguments without the program's name; None takes the process's.
        asynchronous: Whether the script runs the recipes with ``algorithm.staleness_threshold``, or those without;
            None runs both.
        also: Other task types that it runs.
    """
    parser = _parser(task_type)
    args = parse_mixed(parser, argv)
    if args.config_name is None and args.overrides and _names_recipe(args.overrides[0]):
        args.config_name = args.overrides.pop(0)
    if args.quiet:
        os.environ["RLINF_QUIET"] = "1"
        os.environ.setdefault("RLINF_LOG_LEVEL", "WARNING")

    @hear_interrupts()
    def action() -> int | None:
        from rlinf.cli.migrate import migration_hint
        from rlinf.config import list_recipes, load_recipe, validate_cfg
        from rlinf.runners.readiness import check_ready

        config_dir = find_config_dir(args.config_dir)
        if args.config_name is None:
            known = ", ".join(list_recipes(config_dir)) or "none"
            parser.error(f"--config-name: missing; give the name of a recipe. Known recipes: {known}.")
        with migration_hint(args.config_name):
            cfg = validate_cfg(load_recipe(args.config_name, args.overrides, config_dir))
        if cfg.runner.task_type not in {task_type, *also}:
            raise ConfigError(
                f"runner.task_type: received '{cfg.runner.task_type}'; this script runs task_type={task_type}. "
                f"Use {_scripts_of(cfg)}."
            )
        if asynchronous is not None:
            _check_asynchronous(cfg, asynchronous)
        check_ready(cfg)
        start: Callable[[Any], Any] = import_target(launch)
        result = start(cfg)
        return result if isinstance(result, int) else 0

    return run_and_report(action)


def _names_recipe(argument: str) -> bool:
    """Return whether an argument is no override: those have a value, or a sign that removes or adds."""
    return "=" not in argument and not argument.startswith(("~", "+"))


def _scripts_of(cfg: RLinfConfig) -> str:
    """Return the script that runs a recipe."""
    if cfg.runner.task_type == "embodied" and cfg.algorithm.staleness_threshold is not None:
        return _ASYNCHRONOUS
    task_type = cfg.runner.task_type
    script = task_types.get(task_type).script if task_type in task_types else None
    return script or "the script that belongs to the recipe"


def _check_asynchronous(cfg: RLinfConfig, asynchronous: bool) -> None:
    threshold = cfg.algorithm.staleness_threshold
    if (threshold is not None) == asynchronous:
        return
    if asynchronous:
        raise ConfigError(
            "algorithm.staleness_threshold: missing; this script trains while environments are stepped. Set it to 1, "
            f"say, or use {_scripts_of(cfg)}."
        )
    raise ConfigError(
        f"algorithm.staleness_threshold: received {threshold}; this script takes turns between environments and "
        f"training. Use {_scripts_of(cfg)}, or remove the key."
    )


def _parser(task_type: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=f"Run a recipe of task_type={task_type}.")
    parser.add_argument("--config-name", metavar="RECIPE", help="name of a recipe; `rlinf list recipes` shows them")
    parser.add_argument(
        "--quiet", action="store_true", help="print only warnings, errors and a last line with where the results are"
    )
    add_config_dir(parser)
    add_overrides(parser)
    return parser
