"""``rlinf plan``: validate a recipe offline and show where everything runs and how much of it there is."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

from rlinf.cli.arguments import add_config_dir, add_overrides, find_config_dir
from rlinf.config import load_recipe, to_dict
from rlinf.config.validate import RunPlan, plan_run, planned_cluster
from rlinf.errors import ConfigError
from rlinf.placement import draw_plan


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
    recipe = load_recipe(args.recipe, args.overrides, find_config_dir(args.config_dir))
    plan = plan_run(recipe, accelerators_per_node=args.accelerators_per_node)
    print(f"{args.recipe}: valid\n")
    print(_draw(plan))
    print()
    print("\n".join(_table(_sizes(plan))))
    if args.resolved:
        import yaml

        print(f"\n{yaml.safe_dump(to_dict(plan.cfg), sort_keys=False, allow_unicode=True)}", end="")
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
        "The recipe does not say what the nodes hold: drawn without accelerators. "
        "Pass --accelerators-per-node N for another."
    )


def _assume_laptop(plan: RunPlan) -> RunPlan | None:
    cluster = replace(plan.cfg.cluster, num_nodes=plan.cfg.cluster.num_nodes or 1)
    try:
        return plan_run(replace(plan.cfg, cluster=cluster), accelerators_per_node=0)
    except ConfigError:
        return None


def _sizes(plan: RunPlan) -> list[tuple[str, str]]:
    cfg, sizes, world = plan.cfg, plan.sizes, plan.world
    train, actor = cfg.env.train, cfg.actor
    stages = cfg.rollout.pipeline_stage_num
    collected = [
        ("environments", f"{train.total_num_envs}{_per_worker(sizes.envs_per_worker, stages)}"),
        (
            "rollout",
            f"{train.rollout_epoch} epoch(s) of {train.max_steps_per_rollout_epoch} environment steps = "
            f"{sizes.chunk_steps} chunk(s) of {actor.model.num_action_chunks}",
        ),
        (
            "samples per step",
            f"{sizes.samples_per_step} = {sizes.chunk_steps} chunks x {train.total_num_envs} environments x "
            f"{train.rollout_epoch} epoch(s)",
        ),
        ("environment steps per step", str(sizes.env_steps_per_step)),
    ]
    env_steps = cfg.runner.total_steps * sizes.env_steps_per_step
    rows = [
        *([("data", f"{cfg.data.path} ({cfg.data.format})")] if cfg.data is not None else collected),
        (
            "optimizer steps per step",
            _optimizer_steps(plan),
        ),
        (
            "micro-batches per optimizer step",
            _micro_batches(actor.global_batch_size, actor.micro_batch_size, world.actor),
        ),
        (
            "whole run",
            f"{cfg.runner.total_steps} steps, {cfg.runner.total_steps * sizes.optimizer_steps_per_step} optimizer "
            f"steps{f', {env_steps} environment steps' if cfg.data is None else ''}",
        ),
    ]
    evaluation = cfg.env.eval
    if evaluation is not None and (cfg.runner.val_check_interval > 0 or cfg.runner.only_eval):
        when = "once" if cfg.runner.only_eval else f"every {cfg.runner.val_check_interval} steps"
        workers = _per_worker(sizes.eval_envs_per_worker, stages)
        rows.append(("evaluation", f"{when}, {evaluation.total_num_envs} environments{workers}"))
    return rows


def _optimizer_steps(plan: RunPlan) -> str:
    cfg, sizes = plan.cfg, plan.sizes
    epochs = f"update_epoch {cfg.algorithm.update_epoch}"
    if cfg.algorithm.loss.draws_batches:
        whose = " of the critics" if cfg.algorithm.loss.trains_q_heads else ""
        return f"{sizes.optimizer_steps_per_step}{whose} = {epochs}, each on a batch from {_source(plan)}"
    batches = f"{sizes.samples_per_step} / global_batch_size {cfg.actor.global_batch_size}"
    return f"{sizes.optimizer_steps_per_step} = {batches} x {epochs}"


def _source(plan: RunPlan) -> str:
    return "the replay" if plan.cfg.data is None else "the dataset"


def _per_worker(envs: int | None, stages: int) -> str:
    if envs is None:
        return ""
    return f" ({envs} per env worker{f', {envs // stages} per pipeline stage' if stages > 1 else ''})"


def _micro_batches(global_batch: int, micro_batch: int, ranks: int | None) -> str:
    if ranks is None:
        return f"global_batch_size {global_batch} / (micro_batch_size {micro_batch} x actor ranks)"
    count = global_batch // (micro_batch * ranks)
    return f"{count} per actor rank = {global_batch} / (micro_batch_size {micro_batch} x {ranks} actor rank(s))"


def _table(rows: Sequence[tuple[str, str]]) -> list[str]:
    width = max(len(name) for name, _ in rows)
    return [f"{name:<{width}}  {text}" for name, text in rows]
