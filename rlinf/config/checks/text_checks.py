"""Whether the sections of a recipe of a language model fit together, and what reasoning recipes need in addition."""

from __future__ import annotations

from rlinf.config.checks.recipe_check import Check
from rlinf.config.checks.reward_checks import check_text_rewards
from rlinf.config.parse import fields_of
from rlinf.config.schema.agent import SessionsConfig
from rlinf.config.schema.algorithm import ActorCriticLossConfig, GAEConfig, PPOLossConfig, advantages
from rlinf.config.schema.critic import CriticConfig
from rlinf.config.schema.root import LanguageConfig, ReasoningConfig


def check_data(check: Check[LanguageConfig]) -> None:
    """There is something to train on, and to evaluate on where a run evaluates."""
    runner, data = check.cfg.runner, check.cfg.data
    if not data.train_data_paths and not runner.only_eval and not _serves_clients(check.cfg):
        check.problem(
            "data.train_data_paths", "missing; there is nothing to train on. Name a .jsonl or .parquet file, say."
        )
    if (runner.val_check_interval > 0 or runner.only_eval) and not data.val_data_paths:
        check.problem(
            "data.val_data_paths", "missing; the run evaluates. Name one, or set runner.val_check_interval=-1."
        )


def _serves_clients(cfg: LanguageConfig) -> bool:
    return isinstance(cfg, ReasoningConfig) and isinstance(cfg.agent, SessionsConfig)


def check_evaluation(check: Check[LanguageConfig]) -> None:
    """Metrics of an evaluation can be computed from its responses, and have names of their own."""
    runner, names = check.cfg.runner, check.cfg.data.val_names
    if runner.val_samples == 1:
        check.unused(runner, ("val_pass_at",), "runner", "while runner.val_samples is 1")
    elif any(k > runner.val_samples for k in runner.val_pass_at):
        check.problem(
            "runner.val_pass_at",
            f"received {runner.val_pass_at}; at most runner.val_samples {runner.val_samples} responses can be sampled "
            f"from those to a prompt. Set runner.val_samples={max(runner.val_pass_at)}, or lower it.",
        )
    for name in sorted({name for name in names if names.count(name) > 1}):
        check.problem(
            "data.val_data_paths",
            f"received several of the name '{name}', which metrics could not tell apart. Rename a file.",
        )


def check_sampling(check: Check[LanguageConfig]) -> None:
    """Responses are sampled among some tokens, or among all."""
    top_k = check.cfg.algorithm.sampling_params.top_k
    if top_k != -1 and top_k < 1:
        check.problem(
            "algorithm.sampling_params.top_k",
            f"received {top_k}; allowed: an integer > 0, or -1. Set it to -1 to draw among all tokens.",
        )


def check_batches(check: Check[ReasoningConfig]) -> None:
    """Answers fill global batches."""
    cfg = check.cfg
    actor, answers = cfg.actor, cfg.answers_per_step
    if answers % actor.global_batch_size:
        check.problem(
            "actor.global_batch_size",
            f"received {actor.global_batch_size}; must divide the answers of a step: data.rollout_batch_size "
            f"{cfg.data.rollout_batch_size} x algorithm.group_size {cfg.algorithm.group_size} = {answers}. "
            f"Set it to {answers}.",
        )


def check_passes(check: Check[LanguageConfig]) -> None:
    """Every rank gets some of each global batch, and the longest sequence fits into a pass."""
    cfg, world = check.cfg, check.world
    runner, batch, longest = cfg.runner, cfg.actor.global_batch_size, cfg.max_sequence_tokens
    if world.actor is not None and batch < world.actor:
        check.problem(
            "actor.global_batch_size",
            f"received {batch}; {world.actor} actor ranks need an answer each. Raise it.",
        )
    if runner.enable_dynamic_batch_size and runner.max_tokens_per_mbs < longest:
        check.problem(
            "runner.max_tokens_per_mbs",
            f"received {runner.max_tokens_per_mbs}; an answer may have {cfg.sequence_keys} = {longest} tokens with its "
            f"prompt. Raise it to {longest} at least.",
        )


def check_algorithm(check: Check[ReasoningConfig]) -> None:
    """Advantage, loss and model work together, on text."""
    algorithm, model = check.cfg.algorithm, check.cfg.actor.model
    if algorithm.loss.learner != "on_policy":
        check.problem(
            "algorithm.loss_type",
            f"received {algorithm.loss_type}, which does not learn from text. Set algorithm.loss_type=actor, say.",
        )
    if algorithm.advantage.compares_groups and algorithm.group_size < 2:
        check.problem(
            "algorithm.group_size",
            f"received {algorithm.group_size}; adv_type={algorithm.adv_type} compares the answers to one prompt: "
            "allowed: an integer > 1. Set it to 8, say.",
        )
    needs_values = isinstance(algorithm.loss, ActorCriticLossConfig) or isinstance(algorithm.advantage, GAEConfig)
    critic = check.cfg.critic
    if critic.use_critic_model:
        _check_critic(check, needs_values=needs_values)
        return
    check.unused(critic, [field.name for field in fields_of(CriticConfig)], "critic", "without critic.use_critic_model")
    if needs_values and not model.add_value_head:
        check.problem(
            "actor.model.add_value_head",
            f"received False; adv_type={algorithm.adv_type} with loss_type={algorithm.loss_type} needs values. Set it "
            "to true, or critic.use_critic_model=true.",
        )
    if model.add_value_head and type(algorithm.loss) is PPOLossConfig:
        check.problem(
            "actor.model.add_value_head",
            "received True; loss_type=actor does not train a value head. Set algorithm.loss_type=actor_critic.",
        )


def check_teacher(check: Check[ReasoningConfig]) -> None:
    """A teacher is compared with, and distillation has one."""
    algorithm = check.cfg.algorithm
    if algorithm.teacher is not None and not algorithm.needs_reference:
        check.problem(
            "algorithm.teacher",
            f"adv_type={algorithm.adv_type} with loss_type={algorithm.loss_type} compares with no other model. Remove "
            "it, or set algorithm.adv_type=opd or algorithm.kl_beta.",
        )
    if algorithm.teacher is not None and algorithm.teacher.model.is_lora:
        check.problem("algorithm.teacher.model.is_lora", "a teacher is not trained. Set algorithm.teacher without it.")
    if not algorithm.advantage.needs_reference:
        return
    if algorithm.teacher is None:
        check.problem(
            "algorithm.teacher",
            f"missing; adv_type={algorithm.adv_type} learns from a teacher. Set algorithm.teacher.model.model_path and "
            "algorithm.teacher.model.model_type.",
        )
    if algorithm.kl_in_reward is not None:
        check.problem(
            "algorithm.kl_in_reward",
            f"adv_type={algorithm.adv_type} reads no rewards. Remove it.",
        )


def _check_critic(check: Check[ReasoningConfig], *, needs_values: bool) -> None:
    """A critic of its own has someone to predict for, and is the only one."""
    algorithm, model = check.cfg.algorithm, check.cfg.actor.model
    if not needs_values:
        check.problem(
            "critic.use_critic_model",
            f"received True; adv_type={algorithm.adv_type} needs no values. Set algorithm.adv_type=gae.",
        )
    if model.add_value_head or isinstance(algorithm.loss, ActorCriticLossConfig):
        check.problem(
            "critic.use_critic_model",
            f"received True; loss_type={algorithm.loss_type} with actor.model.add_value_head={model.add_value_head} "
            "trains the policy's own head. Set algorithm.loss_type=actor and actor.model.add_value_head=false.",
        )
    chosen = check.cfg.critic.model or model
    if chosen.is_lora:
        check.problem("critic.model.is_lora", "a critic has no adapters. Set critic.model without them.")


def check_dynamic_sampling(check: Check[ReasoningConfig]) -> None:
    """Groups are replaced where equal scores have no learning signal, and a generation batch may be enough."""
    algorithm, data = check.cfg.algorithm, check.cfg.data
    if not algorithm.replaces_groups:
        check.unused(data, ("gen_batch_size",), "data", "while algorithm.max_num_gen_batches is 1")
        return
    if not algorithm.advantage.compares_groups:
        comparing = [name for name in advantages.configs if advantages.configs.get(name).compares_groups]
        check.problem(
            "algorithm.max_num_gen_batches",
            f"received {algorithm.max_num_gen_batches}; adv_type={algorithm.adv_type} also learns from answers that "
            f"score all the same. Remove it, or choose adv_type={', '.join(comparing)}.",
        )
    if data.gen_batch_size is not None and data.gen_batch_size < data.rollout_batch_size:
        check.problem(
            "data.gen_batch_size",
            f"received {data.gen_batch_size}; must be at least data.rollout_batch_size {data.rollout_batch_size}. "
            f"Set it to {2 * data.rollout_batch_size}, say.",
        )


def check_carry_over(check: Check[ReasoningConfig]) -> None:
    """Groups may come later where later is allowed, and where no step looks at further ones."""
    algorithm, size = check.cfg.algorithm, check.cfg.data.rollout_batch_size
    share, path = algorithm.carry_over, "algorithm.carry_over"
    if not share:
        return
    if not algorithm.staleness_threshold:
        check.problem(
            path,
            f"received {share}; groups that are trained on later were begun with older weights, and "
            "algorithm.staleness_threshold allows none. Set that to 1, say.",
        )
    if algorithm.replaces_groups:
        check.problem(path, "not possible with algorithm.max_num_gen_batches above 1. Remove one of them.")
    if isinstance(check.cfg.agent, SessionsConfig):
        check.problem(path, "not used by agent.workflow=sessions, whose sessions are taken as they end. Remove it.")
    if int(share * size) == 0:
        check.problem(
            path,
            f"received {share}; of data.rollout_batch_size {size} groups that is none. Set it to {1 / size:g}, say.",
        )


def check_unused(check: Check[LanguageConfig]) -> None:
    """Keys that have no effect on language models, or not on this one."""
    cfg = check.cfg
    runner, actor, model = cfg.runner, cfg.actor, cfg.actor.model
    reason = f"by task_type={runner.task_type}"
    check.unused(actor, ("critic_optim", "sft_loss_weight", "sft_batch_size"), "actor", reason)
    names = ("add_q_head", "num_q_heads", "q_head_type", "num_action_chunks")
    check.unused(model, names, "actor.model", reason)
    check.unused(runner, ("enable_decoupled_mode",), "runner", reason)
    if not runner.enable_dynamic_batch_size:
        check.unused(runner, ("max_tokens_per_mbs",), "runner", "without runner.enable_dynamic_batch_size")


def check_profiling(check: Check[LanguageConfig]) -> None:
    """Only components that there are can be profiled."""
    cfg = check.cfg
    absent = [name for name in cfg.cluster.profiling.groups if name not in cfg.group_names]
    if cfg.cluster.profiling.enable and absent:
        check.problem(
            "cluster.profiling.groups",
            f"received {', '.join(absent)}; this recipe has {', '.join(cfg.group_names)}. Choose among these.",
        )


def check_offload(check: Check[ReasoningConfig]) -> None:
    """Engines that answer ahead are needed while the actor trains."""
    threshold = check.cfg.algorithm.staleness_threshold
    if threshold and check.cfg.rollout.enable_offload:
        check.problem(
            "rollout.enable_offload",
            f"received True; with algorithm.staleness_threshold={threshold} engines answer while the actor trains. "
            "Remove it, and place them on devices of their own.",
        )


def check_rewards(check: Check[ReasoningConfig]) -> None:
    """There is something to learn from."""
    check_text_rewards(check.cfg.reward, check)


SHARED_RULES = (check_data, check_evaluation, check_sampling, check_passes, check_unused, check_profiling)
RULES = (
    check_batches,
    check_algorithm,
    check_teacher,
    check_dynamic_sampling,
    check_carry_over,
    check_offload,
    check_rewards,
)
