"""Whether the sections of a recipe fit together that fine-tunes a language model on given answers."""

from __future__ import annotations

from rlinf.config.checks.reward_checks import check_text_rewards
from rlinf.config.checks.run_sizes import WorldSizes
from rlinf.config.checks.runner_checks import check_optimizer
from rlinf.config.problems import Problems
from rlinf.config.schema.algorithm import NoAdvantageConfig
from rlinf.config.schema.root import SftConfig
from rlinf.config.unused import note_unused


def check_algorithm(cfg: SftConfig, world: WorldSizes, problems: Problems) -> None:
    """The loss learns from given answers, which need no advantages and no values."""
    del world
    algorithm, path = cfg.algorithm, "actor.model.add_value_head"
    if algorithm.loss.learner != "sft":
        problems.add(
            "algorithm.loss_type",
            f"received {algorithm.loss_type}, which learns from a model's own answers. Set algorithm.loss_type=sft, or "
            "runner.task_type=reasoning.",
        )
    if not isinstance(algorithm.advantage, NoAdvantageConfig):
        problems.add(
            "algorithm.adv_type",
            f"received {algorithm.adv_type}; given answers have no advantages. Remove it, or set runner.task_type="
            "reasoning.",
        )
    if cfg.actor.model.add_value_head:
        problems.add(path, "received True; task_type=sft does not train a value head. Remove it.")


def check_data(cfg: SftConfig, world: WorldSizes, problems: Problems) -> None:
    """Rows say what is to be learned, in one way."""
    del world
    data = cfg.data
    if data.messages_key is not None:
        keys = (
            "prompt_key",
            "answer_key",
            "val_prompt_key",
            "val_answer_key",
            "prompt_template",
            "apply_chat_template",
        )
        note_unused(problems, data, keys, "data", "with data.messages_key")
        return
    note_unused(problems, data, ("train_turns",), "data", "without data.messages_key")
    if data.answer_key is None:
        problems.add(
            "data.answer_key",
            "received null; it is the column of what is learned. Name it, or data.messages_key instead.",
        )


def check_evaluation(cfg: SftConfig, world: WorldSizes, problems: Problems) -> None:
    """Evaluations that ask have engines and rewards, and engines and rewards have evaluations."""
    del world
    runner = cfg.runner
    evaluates = runner.val_check_interval > 0 or runner.only_eval
    if cfg.rollout is not None and cfg.reward is None:
        problems.add("reward", "missing; evaluations with a section rollout judge answers. Add it, or remove rollout.")
    if cfg.reward is not None and cfg.rollout is None:
        problems.add("reward", "not used without a section rollout, which answers. Remove it, or add rollout.")
    if cfg.rollout is not None and not evaluates:
        problems.add("rollout", "not used while the run never evaluates. Set runner.val_check_interval, or remove it.")
    if cfg.reward is not None:
        check_text_rewards(cfg.reward, problems)


def check_schedule(cfg: SftConfig, world: WorldSizes, problems: Problems) -> None:
    """A falling learning rate ends with the run, or behind its warm-up."""
    del world
    check_optimizer(cfg.actor.optim, "actor.optim", problems, ends_with_run=True)


def check_unused(cfg: SftConfig, world: WorldSizes, problems: Problems) -> None:
    """Keys that have no effect on fine-tuning, or not without engines."""
    del world
    reason = "by task_type=sft"
    note_unused(problems, cfg.algorithm, ("group_size", "staleness_threshold"), "algorithm", reason)
    note_unused(problems, cfg.actor.optim, ("value_lr", "critic_warmup_steps"), "actor.optim", reason)
    if cfg.rollout is None:
        reason = "without a section rollout"
        note_unused(problems, cfg.algorithm, ("sampling_params",), "algorithm", reason)
        note_unused(problems, cfg.runner, ("val_samples", "val_correct_reward"), "runner", reason)
        note_unused(problems, cfg.data, ("metadata_keys",), "data", reason)
        note_unused(problems, cfg.actor, ("enable_offload",), "actor", reason)
        note_unused(problems, cfg, ("weight_syncer",), "", reason)


RULES = (check_algorithm, check_data, check_evaluation, check_schedule, check_unused)
