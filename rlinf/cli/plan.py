"""``rlinf plan``: validate a recipe offline and show where everything runs and how much of it there is."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from rlinf.cli.arguments import add_config_dir, add_overrides, find_config_dir
from rlinf.cli.migrate import migration_hint
from rlinf.config import load_recipe, to_dict
from rlinf.config.registries import task_types
from rlinf.config.validate import RunPlan, plan_run, planned_cluster
from rlinf.errors import ConfigError
from rlinf.placement import draw_plan
from rlinf.registry import import_target
from rlinf.runners.readiness import bullets, find_missing
from rlinf.utils.secrets import hide_for_reader


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``rlinf plan``."""
    parser.add_argument("recipe", help="name of a recipe, or the path of one")
    add_overrides(parser)
    add_config_dir(parser)
    parser.add_argument(
        "--accelerators-per-node",
        type=int,
        metavar="N",
        help="accelerators on each node whose number the recipe does not declare; 0 for none",
    )
    parser.add_argument("--resolved", action="store_true", help="also print the whole recipe, defaults filled in")


def run(args: argparse.Namespace) -> int:
    """Print the plan of a recipe.

    Returns:
        0; problems are raised.

    Raises:
        ConfigError: The recipe cannot run; one line for each problem.
    """
    with migration_hint(args.recipe):
        recipe = load_recipe(args.recipe, args.overrides, find_config_dir(args.config_dir))
        plan = plan_run(recipe, accelerators_per_node=args.accelerators_per_node)
    print(f"{args.recipe}: valid\n")
    print(_draw(plan))
    print()
    print("\n".join(_table(_count_work(plan))))
    if args.resolved:
        import yaml

        print(f"\n{yaml.safe_dump(hide_for_reader(to_dict(plan.cfg)), sort_keys=False, allow_unicode=True)}", end="")
    missing = find_missing(plan.cfg, offline=True)
    if missing:
        # The recipe is valid, and may be meant for another machine: the exit code says nothing of this.
        print("\n".join(["\nIt cannot be run on this machine as it is:", *bullets(missing)]), file=sys.stderr)
    return 0


def _draw(plan: RunPlan) -> str:
    """Draw the placement; where the recipe leaves the nodes open, on one node without accelerators if it fits."""
    components = plan.placement.components
    if all(plan.placement.get_node_group(name).is_known for name in components):
        return draw_plan(plan.placement, planned_cluster(plan).nodes)
    assumed = _assume_laptop(plan)
    if assumed is None:
        return draw_plan(plan.placement, planned_cluster(plan).nodes)
    return (
        f"{draw_plan(assumed.placement, planned_cluster(assumed).nodes)}\n\n"
        "The recipe does not say what the nodes hold: shown without accelerators. "
        "Pass --accelerators-per-node N for another."
    )


def _assume_laptop(plan: RunPlan) -> RunPlan | None:
    cluster = replace(plan.cfg.cluster, num_nodes=plan.cfg.cluster.num_nodes or 1)
    try:
        return plan_run(replace(plan.cfg, cluster=cluster), accelerators_per_node=0)
    except ConfigError:
        return None


def _count_work(plan: RunPlan) -> list[tuple[str, str]]:
    """Return the rows of the recipe's task type; none where a plug-in has none."""
    task_type = plan.cfg.runner.task_type
    path = task_types.get(task_type).plan if task_type in task_types else None
    rows: list[tuple[str, str]] = [] if path is None else import_target(path)(plan.cfg, plan.world)
    return rows


def _table(rows: Sequence[tuple[str, str]]) -> list[str]:
    width = max((len(name) for name, _ in rows), default=0)
    return [f"{name:<{width}}  {text}" for name, text in rows]
