"""How much work a train step of a recipe is, in words: what ``rlinf plan`` prints below the placement.

``TaskType.plan`` names the function of a task type; a plug-in names its own.
"""

from __future__ import annotations

from rlinf.cli.memory_plan import memory_rows
from rlinf.config.checks.run_sizes import RunSizes, WorldSizes, run_sizes
from rlinf.config.schema.root import (
    CollectConfig,
    EmbodiedConfig,
    LanguageConfig,
    ReasoningConfig,
    RLinfConfig,
    SftConfig,
    ValueConfig,
)

Row = tuple[str, str]


def collect_rows(cfg: CollectConfig, world: WorldSizes) -> list[Row]:
    """Return how many episodes a recipe collects, at the most.

    Args:
        cfg: The recipe.
        world: Sizes of the worker groups.
    """
    del world
    env = cfg.env.eval
    assert env is not None  # a rule has said so
    count = env.total_num_envs * env.rollout_epoch * (env.max_steps_per_rollout_epoch // env.max_episode_steps)
    who = env.data_collection.policy
    return [("episodes", f"{count} of {env.max_episode_steps} environment steps at the most, by {who}")]


def embodied_rows(cfg: EmbodiedConfig, world: WorldSizes) -> list[Row]:
    """Return what is counted in an embodied or offline recipe and how much of it there is.

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
    length = _length(cfg, sizes.optimizer_steps_per_step)
    learns_offline = cfg.algorithm.loss.learns_offline
    evaluation = cfg.env.eval
    return [
        *([] if learns_offline else collected),
        *([("data", f"{cfg.data.path} ({cfg.data.format})")] if cfg.data is not None else []),
        ("optimizer steps per step", _optimizer_steps(cfg, sizes)),
        (
            "micro-batches per optimizer step",
            _embodied_micro_batches(actor.global_batch_size, actor.micro_batch_size, world.actor),
        ),
        ("whole run", length if learns_offline else f"{length}, {env_steps} environment steps"),
        *_evaluation(
            cfg,
            None
            if evaluation is None
            else f"{evaluation.total_num_envs} environments{_per_worker(sizes.eval_envs_per_worker, stages)}",
        ),
    ]


def reasoning_rows(cfg: ReasoningConfig, world: WorldSizes) -> list[Row]:
    """Return what is counted in a reasoning recipe and how much of it there is.

    Args:
        cfg: The recipe.
        world: Sizes of the worker groups.
    """
    data, actor, algorithm = cfg.data, cfg.actor, cfg.algorithm
    per_epoch = cfg.answers_per_step // actor.global_batch_size
    steps = algorithm.update_epoch * per_epoch
    replaced = f"groups with zero advantages, until {cfg.max_prompts_per_step} prompts have been submitted in a step"
    return [
        ("data", ", ".join(data.train_data_paths)),
        ("prompts per step", f"{data.rollout_batch_size}{_engines(world)}, {algorithm.group_size} responses to each"),
        *([("replaced", replaced)] if algorithm.replaces_groups else []),
        *_episodes(cfg),
        (
            "responses per step",
            f"{cfg.answers_per_step}, of up to {algorithm.sampling_params.max_new_tokens} tokens each",
        ),
        (
            "optimizer steps per step",
            f"{steps} = {cfg.answers_per_step} / global_batch_size {actor.global_batch_size} x update_epoch "
            f"{algorithm.update_epoch}",
        ),
        _micro_batches(cfg),
        *_inference(cfg, world),
        *memory_rows(cfg, world),
        ("whole run", _length(cfg, steps)),
        *_evaluation(cfg, f"{_sampling(cfg)}, {_val_sets(cfg)}"),
    ]


def _episodes(cfg: ReasoningConfig) -> list[Row]:
    agent = cfg.agent
    if agent is None or not cfg.plays_episodes:
        return []
    tools = f", tools {', '.join(agent.tool_configs)}" if agent.tool_configs else ""
    return [
        (
            "episodes",
            f"workflow {agent.workflow}, up to {agent.max_turns} turns within {cfg.max_context_tokens} tokens{tools}",
        )
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
        length = _length(cfg, steps)
    how = "loss and token accuracy"
    if cfg.rollout is not None:
        how += f", and responses{_engines(world)}: {_sampling(cfg)}"
    return [
        ("data", ", ".join(data.train_data_paths)),
        (
            "samples per step",
            f"{cfg.samples_per_step} = global_batch_size {actor.global_batch_size} x update_epoch {steps}, of up to "
            f"{data.max_length} tokens each",
        ),
        ("optimizer steps per step", str(steps)),
        _micro_batches(cfg),
        *memory_rows(cfg, world),
        ("whole run", length),
        *_evaluation(cfg, f"{how}, {_val_sets(cfg)}"),
    ]


def value_rows(cfg: ValueConfig, world: WorldSizes) -> list[Row]:
    """Return what is counted in a recipe that judges frames and how much of it there is.

    Args:
        cfg: The recipe.
        world: Sizes of the worker groups.
    """
    data, actor, steps = cfg.data, cfg.actor, cfg.algorithm.update_epoch
    labels = f"meta/advantages_{data.advantage_tag}.parquet of each data set, at the end"
    held_out = ", ".join(source.path for source in data.val)
    batches = _embodied_micro_batches(actor.global_batch_size, actor.micro_batch_size, world.actor)
    return [
        ("data", ", ".join(f"{source.path} ({source.type})" for source in data.sources)),
        (
            "samples per step",
            f"{steps * actor.global_batch_size} = global_batch_size {actor.global_batch_size} x update_epoch {steps}",
        ),
        ("optimizer steps per step", str(steps)),
        ("micro-batches per optimizer step", batches),
        ("whole run", _length(cfg, steps)),
        *_evaluation(cfg, f"on {held_out}" if held_out else None),
        *([] if data.advantage_tag is None else [("labels", labels)]),
    ]


def _optimizer_steps(cfg: EmbodiedConfig, sizes: RunSizes) -> str:
    epochs = f"update_epoch {cfg.algorithm.update_epoch}"
    if cfg.algorithm.loss.draws_batches:
        whose = " of the critics" if cfg.algorithm.loss.trains_q_heads else ""
        return f"{sizes.optimizer_steps_per_step}{whose} = {epochs}, each on a batch from {_source(cfg)}"
    batches = f"{sizes.samples_per_step} / global_batch_size {cfg.actor.global_batch_size}"
    frames = cfg.actor.sft_batch_size or cfg.actor.global_batch_size
    together = f", each with {frames} frames of data" if cfg.actor.sft_loss_weight else ""
    return f"{sizes.optimizer_steps_per_step} = {batches} x {epochs}{together}"


def _source(cfg: EmbodiedConfig) -> str:
    return "the replay" if cfg.data is None else "the dataset"


def _per_worker(envs: int | None, stages: int) -> str:
    if envs is None:
        return ""
    return f" ({envs} per env worker{f', {envs // stages} per pipeline stage' if stages > 1 else ''})"


def _embodied_micro_batches(global_batch: int, micro_batch: int, ranks: int | None) -> str:
    if ranks is None:
        return f"global_batch_size {global_batch} / (micro_batch_size {micro_batch} x actor ranks)"
    count = global_batch // (micro_batch * ranks)
    return f"{count} per actor rank = {global_batch} / (micro_batch_size {micro_batch} x {ranks} actor rank(s))"


def _engines(world: WorldSizes) -> str:
    return f" on {world.rollout} engine(s)" if world.rollout is not None else ""


def _micro_batches(cfg: LanguageConfig) -> Row:
    passes = f"{cfg.actor.micro_batch_size} responses"
    if cfg.runner.enable_dynamic_batch_size:
        passes = f"up to {cfg.runner.max_tokens_per_mbs} tokens"
    return "micro-batches", f"{passes} on each actor rank"


def _inference(cfg: ReasoningConfig, world: WorldSizes) -> list[Row]:
    section, runner = cfg.inference, cfg.runner
    if section is None:
        return []
    ranks = "the inference ranks" if world.inference is None else f"{world.inference} inference rank(s)"
    passes = f"{section.micro_batch_size or cfg.actor.micro_batch_size} responses"
    if runner.enable_dynamic_batch_size:
        passes = f"up to {section.max_tokens_per_mbs or runner.max_tokens_per_mbs} tokens"
    return [("log-probabilities", f"by {ranks}, {passes} in a pass, while further responses are generated")]


def _sampling(cfg: LanguageConfig) -> str:
    return "greedily" if cfg.runner.val_samples == 1 else f"{cfg.runner.val_samples} responses to each prompt"


def _val_sets(cfg: LanguageConfig) -> str:
    return f"on {', '.join(cfg.data.val_data_paths)}"


def _length(cfg: RLinfConfig, optimizer_steps: int) -> str:
    steps = cfg.runner.total_steps
    return f"{steps} steps, {steps * optimizer_steps} optimizer steps"


def _evaluation(cfg: RLinfConfig, what: str | None) -> list[Row]:
    runner = cfg.runner
    if what is None or (runner.val_check_interval <= 0 and not runner.only_eval):
        return []
    return [("evaluation", f"{'once' if runner.only_eval else f'every {runner.val_check_interval} steps'}, {what}")]
