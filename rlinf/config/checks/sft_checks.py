"""Whether the sections of a recipe fit together that fine-tunes a language model on given answers."""

from __future__ import annotations

from rlinf.config.checks.recipe_check import Check
from rlinf.config.checks.reward_checks import check_text_rewards
from rlinf.config.checks.runner_checks import check_optimizer
from rlinf.config.schema.algorithm import NoAdvantageConfig
from rlinf.config.schema.root import SftConfig


def check_algorithm(check: Check[SftConfig]) -> None:
    """The loss learns from given answers, which need no advantages and no values."""
    algorithm, path = check.cfg.algorithm, "actor.model.add_value_head"
    if algorithm.loss.learner != "sft":
        check.problem(
            "algorithm.loss_type",
            f"received {algorithm.loss_type}, which learns from a model's own answers. Set algorithm.loss_type=sft, or "
            "runner.task_type=reasoning.",
        )
    if not isinstance(algorithm.advantage, NoAdvantageConfig):
        check.problem(
            "algorithm.adv_type",
            f"received {algorithm.adv_type}; given answers have no advantages. Remove it, or set runner.task_type="
            "reasoning.",
        )
    if check.cfg.actor.model.add_value_head:
        check.problem(path, "received True; task_type=sft does not train a value head. Remove it.")


def check_data(check: Check[SftConfig]) -> None:
    """Rows say what is to be learned, in one way."""
    data = check.cfg.data
    if data.messages_key is not None:
        keys = (
            "prompt_key",
            "answer_key",
            "val_prompt_key",
            "val_answer_key",
            "prompt_template",
            "apply_chat_template",
            "choice_key",
        )
        check.unused(data, keys, "data", "with data.messages_key")
        return
    check.unused(data, ("train_turns",), "data", "without data.messages_key")
    if data.answer_key is None:
        check.problem(
            "data.answer_key",
            "received null; it is the column of what is learned. Name it, or data.messages_key instead.",
        )


def check_evaluation(check: Check[SftConfig]) -> None:
    """Evaluations that ask have engines and rewards, and engines and rewards have evaluations."""
    cfg = check.cfg
    runner = cfg.runner
    evaluates = runner.val_check_interval > 0 or runner.only_eval
    if cfg.rollout is not None and cfg.reward is None:
        check.problem("reward", "missing; evaluations with a section rollout judge answers. Add it, or remove rollout.")
    if cfg.reward is not None and cfg.rollout is None:
        check.problem("reward", "not used without a section rollout, which answers. Remove it, or add rollout.")
    if cfg.rollout is not None and not evaluates:
        check.problem("rollout", "not used while the run never evaluates. Set runner.val_check_interval, or remove it.")
    if cfg.reward is not None:
        check_text_rewards(cfg.reward, check)


def check_schedule(check: Check[SftConfig]) -> None:
    """A falling learning rate ends with the run, or behind its warm-up."""
    check_optimizer(check.cfg.actor.optim, "actor.optim", check, ends_with_run=True)


def check_unused(check: Check[SftConfig]) -> None:
    """Keys that have no effect on fine-tuning, or not without engines."""
    cfg = check.cfg
    reason = "by task_type=sft"
    check.unused(cfg.algorithm, ("group_size", "staleness_threshold"), "algorithm", reason)
    check.unused(cfg.actor.optim, ("value_lr", "critic_warmup_steps"), "actor.optim", reason)
    if cfg.rollout is None:
        reason = "without a section rollout"
        check.unused(cfg.algorithm, ("sampling_params",), "algorithm", reason)
        check.unused(cfg.runner, ("val_samples", "val_correct_reward"), "runner", reason)
        check.unused(cfg.data, ("metadata_keys",), "data", reason)
        check.unused(cfg.actor, ("enable_offload",), "actor", reason)
        check.unused(cfg, ("weight_syncer",), "", reason)


RULES = (check_algorithm, check_data, check_evaluation, check_schedule, check_unused)
