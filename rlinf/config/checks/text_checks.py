"""Whether the sections of a recipe of a language model fit together, and what reasoning recipes need in addition."""

from __future__ import annotations

from rlinf.config.checks.algorithm_checks import GROUP_ADVANTAGES
from rlinf.config.checks.reward_checks import check_text_rewards
from rlinf.config.checks.run_sizes import WorldSizes
from rlinf.config.problems import Problems
from rlinf.config.schema.algorithm import ActorCriticLossConfig, GAEConfig, PPOLossConfig
from rlinf.config.schema.root import LanguageConfig, ReasoningConfig
from rlinf.config.unused import note_unused


def check_data(cfg: LanguageConfig, world: WorldSizes, problems: Problems) -> None:
    """There is something to train on, and to evaluate on where a run evaluates."""
    del world
    runner, data = cfg.runner, cfg.data
    if not data.train_data_paths and not runner.only_eval:
        problems.add(
            "data.train_data_paths", "missing; there is nothing to train on. Name a .jsonl or .parquet file, say."
        )
    if (runner.val_check_interval > 0 or runner.only_eval) and not data.val_data_paths:
        problems.add(
            "data.val_data_paths", "missing; the run evaluates. Name one, or set runner.val_check_interval=-1."
        )


def check_evaluation(cfg: LanguageConfig, world: WorldSizes, problems: Problems) -> None:
    """Metrics of an evaluation can be computed from its responses, and have names of their own."""
    del world
    runner, names = cfg.runner, cfg.data.val_names
    if runner.val_samples == 1:
        note_unused(problems, runner, ("val_pass_at",), "runner", "while runner.val_samples is 1")
    elif any(k > runner.val_samples for k in runner.val_pass_at):
        problems.add(
            "runner.val_pass_at",
            f"received {runner.val_pass_at}; at most runner.val_samples {runner.val_samples} responses can be sampled "
            f"from those to a prompt. Set runner.val_samples={max(runner.val_pass_at)}, or lower it.",
        )
    for name in sorted({name for name in names if names.count(name) > 1}):
        problems.add(
            "data.val_data_paths",
            f"received several of the name '{name}', which metrics could not tell apart. Rename a file.",
        )


def check_sampling(cfg: LanguageConfig, world: WorldSizes, problems: Problems) -> None:
    """Responses are sampled among some tokens, or among all."""
    del world
    top_k = cfg.algorithm.sampling_params.top_k
    if top_k != -1 and top_k < 1:
        problems.add(
            "algorithm.sampling_params.top_k",
            f"received {top_k}; allowed: an integer > 0, or -1. Set it to -1 to draw among all tokens.",
        )


def check_batches(cfg: ReasoningConfig, world: WorldSizes, problems: Problems) -> None:
    """Answers fill global batches."""
    del world
    actor, answers = cfg.actor, cfg.answers_per_step
    if answers % actor.global_batch_size:
        problems.add(
            "actor.global_batch_size",
            f"received {actor.global_batch_size}; must divide the answers of a step: data.rollout_batch_size "
            f"{cfg.data.rollout_batch_size} x algorithm.group_size {cfg.algorithm.group_size} = {answers}. "
            f"Set it to {answers}.",
        )


def check_passes(cfg: LanguageConfig, world: WorldSizes, problems: Problems) -> None:
    """Every rank gets some of each global batch, and the longest sequence fits into a pass."""
    runner, batch, longest = cfg.runner, cfg.actor.global_batch_size, cfg.max_sequence_tokens
    if world.actor is not None and batch < world.actor:
        problems.add(
            "actor.global_batch_size", f"received {batch}; {world.actor} actor ranks need an answer each. Raise it."
        )
    if runner.enable_dynamic_batch_size and runner.max_tokens_per_mbs < longest:
        problems.add(
            "runner.max_tokens_per_mbs",
            f"received {runner.max_tokens_per_mbs}; an answer may have {cfg.sequence_keys} = {longest} tokens with its "
            f"prompt. Raise it to {longest} at least.",
        )


def check_algorithm(cfg: ReasoningConfig, world: WorldSizes, problems: Problems) -> None:
    """Advantage, loss and model work together, on text."""
    del world
    algorithm, model = cfg.algorithm, cfg.actor.model
    if algorithm.loss.learner != "on_policy":
        problems.add(
            "algorithm.loss_type",
            f"received {algorithm.loss_type}, which does not learn from text. Set algorithm.loss_type=actor, say.",
        )
    if algorithm.adv_type in GROUP_ADVANTAGES and algorithm.group_size < 2:
        problems.add(
            "algorithm.group_size",
            f"received {algorithm.group_size}; adv_type={algorithm.adv_type} compares the answers to one prompt: "
            "allowed: an integer > 1. Set it to 8, say.",
        )
    needs_values = isinstance(algorithm.loss, ActorCriticLossConfig) or isinstance(algorithm.advantage, GAEConfig)
    if needs_values and not model.add_value_head:
        problems.add(
            "actor.model.add_value_head",
            f"received False; adv_type={algorithm.adv_type} with loss_type={algorithm.loss_type} needs values. Set it "
            "to true.",
        )
    if model.add_value_head and type(algorithm.loss) is PPOLossConfig:
        problems.add(
            "actor.model.add_value_head",
            "received True; loss_type=actor does not train a value head. Set algorithm.loss_type=actor_critic.",
        )


def check_dynamic_sampling(cfg: ReasoningConfig, world: WorldSizes, problems: Problems) -> None:
    """Groups are replaced where equal scores have no learning signal, and a generation batch may be enough."""
    del world
    algorithm, data = cfg.algorithm, cfg.data
    if not algorithm.replaces_groups:
        note_unused(problems, data, ("gen_batch_size",), "data", "while algorithm.max_num_gen_batches is 1")
        return
    if algorithm.adv_type not in GROUP_ADVANTAGES:
        problems.add(
            "algorithm.max_num_gen_batches",
            f"received {algorithm.max_num_gen_batches}; adv_type={algorithm.adv_type} also learns from answers that "
            f"score all the same. Remove it, or choose adv_type={', '.join(sorted(GROUP_ADVANTAGES))}.",
        )
    if data.gen_batch_size is not None and data.gen_batch_size < data.rollout_batch_size:
        problems.add(
            "data.gen_batch_size",
            f"received {data.gen_batch_size}; must be at least data.rollout_batch_size {data.rollout_batch_size}. "
            f"Set it to {2 * data.rollout_batch_size}, say.",
        )


def check_unused(cfg: LanguageConfig, world: WorldSizes, problems: Problems) -> None:
    """Keys that have no effect on language models, or not on this one."""
    del world
    runner, actor, model = cfg.runner, cfg.actor, cfg.actor.model
    reason = f"by task_type={runner.task_type}"
    note_unused(problems, actor, ("critic_optim",), "actor", reason)
    names = ("add_q_head", "num_q_heads", "q_head_type", "num_action_chunks")
    note_unused(problems, model, names, "actor.model", reason)
    note_unused(problems, runner, ("enable_decoupled_mode",), "runner", reason)
    if not runner.enable_dynamic_batch_size:
        note_unused(problems, runner, ("max_tokens_per_mbs",), "runner", "without runner.enable_dynamic_batch_size")


def check_profiling(cfg: LanguageConfig, world: WorldSizes, problems: Problems) -> None:
    """Only components that there are can be profiled."""
    del world
    absent = [name for name in cfg.cluster.profiling.groups if name not in cfg.group_names]
    if cfg.cluster.profiling.enable and absent:
        problems.add(
            "cluster.profiling.groups",
            f"received {', '.join(absent)}; this recipe has {', '.join(cfg.group_names)}. Choose among these.",
        )


def check_offload(cfg: ReasoningConfig, world: WorldSizes, problems: Problems) -> None:
    """Engines that answer ahead are needed while the actor trains."""
    del world
    threshold = cfg.algorithm.staleness_threshold
    if threshold and cfg.rollout.enable_offload:
        problems.add(
            "rollout.enable_offload",
            f"received True; with algorithm.staleness_threshold={threshold} engines answer while the actor trains. "
            "Remove it, and place them on devices of their own.",
        )


def check_rewards(cfg: ReasoningConfig, world: WorldSizes, problems: Problems) -> None:
    """There is something to learn from."""
    del world
    check_text_rewards(cfg.reward, problems)


SHARED_RULES = (check_data, check_evaluation, check_sampling, check_passes, check_unused, check_profiling)
RULES = (check_batches, check_algorithm, check_dynamic_sampling, check_offload, check_rewards)
