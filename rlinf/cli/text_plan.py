"""What a step of a recipe of a language model amounts to, in words."""

from __future__ import annotations

from rlinf.config.checks.run_sizes import WorldSizes
from rlinf.config.schema.root import LanguageConfig, ReasoningConfig, SftConfig

Row = tuple[str, str]


def text_rows(cfg: ReasoningConfig, world: WorldSizes) -> list[Row]:
    """Return what is counted in a reasoning recipe and how much of it there is.

    Args:
        cfg: The recipe.
        world: Sizes of the worker groups.
    """
    runner, data, actor, algorithm = cfg.runner, cfg.data, cfg.actor, cfg.algorithm
    per_epoch = cfg.answers_per_step // actor.global_batch_size
    steps = algorithm.update_epoch * per_epoch
    replaced = f"groups that teach nothing, until {cfg.max_prompts_per_step} prompts have been asked in a step"
    return [
        ("data", ", ".join(data.train_data_paths)),
        ("prompts per step", f"{data.rollout_batch_size}{_engines(world)}, {algorithm.group_size} answers to each"),
        *([("replaced", replaced)] if algorithm.replaces_groups else []),
        (
            "answers per step",
            f"{cfg.answers_per_step}, of up to {algorithm.sampling_params.max_new_tokens} tokens each",
        ),
        (
            "optimizer steps per step",
            f"{steps} = {cfg.answers_per_step} / global_batch_size {actor.global_batch_size} x update_epoch "
            f"{algorithm.update_epoch}",
        ),
        _micro_batches(cfg),
        *_inference(cfg, world),
        ("whole run", f"{runner.total_steps} steps, {runner.total_steps * steps} optimizer steps"),
        *_evaluation(cfg, _how_answered(cfg)),
    ]


def sft_rows(cfg: SftConfig, world: WorldSizes) -> list[Row]:
    """Return what is counted in a recipe of fine-tuning and how much of it there is.

    Args:
        cfg: The recipe.
        world: Sizes of the worker groups.
    """
    runner, data, actor, steps = cfg.runner, cfg.data, cfg.actor, cfg.algorithm.update_epoch
    length = f"{runner.max_epochs} pass(es) over the data, counted when it has been read"
    if runner.max_steps >= 0:
        length = f"{runner.max_steps} steps, {runner.max_steps * steps} optimizer steps"
    how = "loss and token accuracy"
    if cfg.rollout is not None:
        how += f", and answers{_engines(world)}: {_how_answered(cfg)}"
    return [
        ("data", ", ".join(data.train_data_paths)),
        (
            "samples per step",
            f"{cfg.samples_per_step} = global_batch_size {actor.global_batch_size} x update_epoch {steps}, of up to "
            f"{data.max_length} tokens each",
        ),
        ("optimizer steps per step", str(steps)),
        _micro_batches(cfg),
        ("whole run", length),
        *_evaluation(cfg, how),
    ]


def _engines(world: WorldSizes) -> str:
    return f" on {world.rollout} engine(s)" if world.rollout is not None else ""


def _micro_batches(cfg: LanguageConfig) -> Row:
    passes = f"{cfg.actor.micro_batch_size} answers"
    if cfg.runner.enable_dynamic_batch_size:
        passes = f"up to {cfg.runner.max_tokens_per_mbs} tokens"
    return "micro-batches", f"{passes} on each actor rank"


def _inference(cfg: ReasoningConfig, world: WorldSizes) -> list[Row]:
    section, runner = cfg.inference, cfg.runner
    if section is None:
        return []
    ranks = "the inference ranks" if world.inference is None else f"{world.inference} inference rank(s)"
    passes = f"{section.micro_batch_size or cfg.actor.micro_batch_size} answers"
    if runner.enable_dynamic_batch_size:
        passes = f"up to {section.max_tokens_per_mbs or runner.max_tokens_per_mbs} tokens"
    return [("log-probabilities", f"by {ranks}, {passes} in a pass, while further answers are generated")]


def _how_answered(cfg: LanguageConfig) -> str:
    return "greedily" if cfg.runner.val_samples == 1 else f"{cfg.runner.val_samples} answers to each prompt"


def _evaluation(cfg: LanguageConfig, how: str) -> list[Row]:
    runner = cfg.runner
    if runner.val_check_interval <= 0 and not runner.only_eval:
        return []
    when = "once" if runner.only_eval else f"every {runner.val_check_interval} steps"
    return [("evaluation", f"{when}, {how}, on {', '.join(cfg.data.val_data_paths)}")]
