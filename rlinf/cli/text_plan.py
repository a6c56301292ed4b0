"""What a step of a reasoning recipe amounts to, in words."""

from __future__ import annotations

from rlinf.config.checks.sizes import WorldSizes
from rlinf.config.schema.root import ReasoningConfig


def text_rows(cfg: ReasoningConfig, world: WorldSizes) -> list[tuple[str, str]]:
    """Return what is counted and how much of it there is.

    Args:
        cfg: The recipe.
        world: Sizes of the worker groups.
    """
    runner, data, actor, algorithm = cfg.runner, cfg.data, cfg.actor, cfg.algorithm
    per_epoch = cfg.answers_per_step // actor.global_batch_size
    steps = algorithm.update_epoch * per_epoch
    engines = f" on {world.rollout} engine(s)" if world.rollout is not None else ""
    passes = (
        f"up to {runner.max_tokens_per_mbs} tokens"
        if runner.enable_dynamic_batch_size
        else f"{actor.micro_batch_size} answers"
    )
    rows = [
        ("data", ", ".join(data.train_data_paths)),
        ("prompts per step", f"{data.rollout_batch_size}{engines}, {algorithm.group_size} answers to each"),
        (
            "answers per step",
            f"{cfg.answers_per_step}, of up to {algorithm.sampling_params.max_new_tokens} tokens each",
        ),
        (
            "optimizer steps per step",
            f"{steps} = {cfg.answers_per_step} / global_batch_size {actor.global_batch_size} x update_epoch "
            f"{algorithm.update_epoch}",
        ),
        ("micro-batches", f"{passes} on each actor rank"),
        ("whole run", f"{runner.total_steps} steps, {runner.total_steps * steps} optimizer steps"),
    ]
    if algorithm.replaces_groups:
        replaced = f"groups that teach nothing, until {cfg.max_prompts_per_step} prompts have been asked in a step"
        rows.insert(2, ("replaced", replaced))
    if runner.val_check_interval > 0 or runner.only_eval:
        when = "once" if runner.only_eval else f"every {runner.val_check_interval} steps"
        how = "greedily" if runner.val_samples == 1 else f"{runner.val_samples} answers to each prompt"
        rows.append(("evaluation", f"{when}, {how}, on {', '.join(data.val_data_paths)}"))
    return rows
