"""What a step of an embodied or offline recipe amounts to, in words."""

from __future__ import annotations

from rlinf.config.checks.run_sizes import RunSizes, WorldSizes, run_sizes
from rlinf.config.schema.root import EmbodiedConfig


def embodied_rows(cfg: EmbodiedConfig, world: WorldSizes) -> list[tuple[str, str]]:
    """Return what is counted and how much of it there is.

    Args:
        cfg: The recipe.
        world: Sizes of the worker groups.
    """
    sizes = run_sizes(cfg, world)
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
            _optimizer_steps(cfg, sizes),
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


def _optimizer_steps(cfg: EmbodiedConfig, sizes: RunSizes) -> str:
    epochs = f"update_epoch {cfg.algorithm.update_epoch}"
    if cfg.algorithm.loss.draws_batches:
        whose = " of the critics" if cfg.algorithm.loss.trains_q_heads else ""
        return f"{sizes.optimizer_steps_per_step}{whose} = {epochs}, each on a batch from {_source(cfg)}"
    batches = f"{sizes.samples_per_step} / global_batch_size {cfg.actor.global_batch_size}"
    return f"{sizes.optimizer_steps_per_step} = {batches} x {epochs}"


def _source(cfg: EmbodiedConfig) -> str:
    return "the replay" if cfg.data is None else "the dataset"


def _per_worker(envs: int | None, stages: int) -> str:
    if envs is None:
        return ""
    return f" ({envs} per env worker{f', {envs // stages} per pipeline stage' if stages > 1 else ''})"


def _micro_batches(global_batch: int, micro_batch: int, ranks: int | None) -> str:
    if ranks is None:
        return f"global_batch_size {global_batch} / (micro_batch_size {micro_batch} x actor ranks)"
    count = global_batch // (micro_batch * ranks)
    return f"{count} per actor rank = {global_batch} / (micro_batch_size {micro_batch} x {ranks} actor rank(s))"
