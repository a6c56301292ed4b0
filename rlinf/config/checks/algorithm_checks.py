"""Whether advantage, loss, model and environments can work together."""

from __future__ import annotations

from rlinf.config.checks.recipe_check import Check
from rlinf.config.schema.algorithm import (
    ActorCriticLossConfig,
    AdvantageConfig,
    DecoupledActorCriticLossConfig,
    GAEConfig,
    GroupFilterConfig,
    GSPOLossConfig,
    PPOLossConfig,
    RegularizedLossConfig,
)
from rlinf.config.schema.frozen_policy import FrozenPolicyKeys
from rlinf.config.schema.root import EmbodiedConfig, RLinfConfig
from rlinf.config.schema.vla import VLAConfig

_FINENESS = {"chunk_level": 0, "action_level": 1, "token_level": 2}


def check_value_head(check: Check[EmbodiedConfig]) -> None:
    """What uses values needs a value head, and a value head needs a loss that trains it."""
    cfg = check.cfg
    algorithm, model = cfg.algorithm, cfg.actor.model
    learns_values = isinstance(algorithm.loss, ActorCriticLossConfig)
    if not model.add_value_head:
        for needs_it, key in (
            (learns_values, f"algorithm.loss_type={algorithm.loss_type}"),
            (isinstance(algorithm.advantage, GAEConfig), f"algorithm.adv_type={algorithm.adv_type}"),
            (cfg.actor.optim.critic_warmup_steps > 0, "actor.optim.critic_warmup_steps > 0"),
        ):
            if needs_it:
                check.problem(
                    "actor.model.add_value_head",
                    f"received False; {key} needs values. Set actor.model.add_value_head=true.",
                )
        check.unused(cfg.actor.optim, ("value_lr",), "actor.optim", "without actor.model.add_value_head")
    elif isinstance(algorithm.loss, RegularizedLossConfig) and not learns_values:
        check.problem(
            "actor.model.add_value_head",
            f"received True; loss_type={algorithm.loss_type} does not train a value head. Set "
            "algorithm.loss_type=actor_critic, or actor.model.add_value_head=false.",
        )


def check_levels(check: Check[EmbodiedConfig]) -> None:
    """A ratio is never coarser than the advantage that it is multiplied with."""
    algorithm = check.cfg.algorithm
    if algorithm.reward_type == "token_level":
        check.problem(
            "algorithm.reward_type",
            "received token_level; allowed: chunk_level, action_level: an environment rewards actions, not their "
            "single dimensions. Set algorithm.reward_type=action_level.",
        )
    elif algorithm.loss.needs_logprobs and _FINENESS[algorithm.logprob_type] < _FINENESS[algorithm.reward_type]:
        check.problem(
            "algorithm.logprob_type",
            f"received {algorithm.logprob_type}; it is coarser than algorithm.reward_type={algorithm.reward_type}, so "
            "one ratio would meet several advantages. Set algorithm.logprob_type=action_level or token_level, or "
            "algorithm.reward_type=chunk_level.",
        )


def check_groups(check: Check[EmbodiedConfig]) -> None:
    """Estimators that compare trajectories need groups of whole trajectories that start alike."""
    algorithm, train = check.cfg.algorithm, check.cfg.env.train
    if not algorithm.advantage.compares_groups:
        return
    if algorithm.group_size < 2:
        check.problem(
            "algorithm.group_size",
            f"received {algorithm.group_size}; adv_type={algorithm.adv_type} compares the trajectories of a group: "
            "allowed: an integer > 1. Set algorithm.group_size and env.train.group_size to 8, say.",
        )
    if train.group_size != algorithm.group_size:
        check.problem(
            "env.train.group_size",
            f"received {train.group_size}; must equal algorithm.group_size {algorithm.group_size} for "
            f"adv_type={algorithm.adv_type}. Set env.train.group_size=${{algorithm.group_size}}.",
        )
    whole = train.ignore_terminations and train.max_episode_steps == train.max_steps_per_rollout_epoch
    if train.auto_reset and not whole:
        check.problem(
            "env.train.auto_reset",
            f"received True; adv_type={algorithm.adv_type} compares whole trajectories, but a rollout epoch may hold "
            "several. Set env.train.auto_reset=false, or env.train.ignore_terminations=true with max_episode_steps "
            f"{train.max_episode_steps} equal to max_steps_per_rollout_epoch {train.max_steps_per_rollout_epoch}.",
        )


def check_advantage_keys(check: Check[EmbodiedConfig]) -> None:
    """Keys of the advantage that have no effect, or contradict each other."""
    algorithm = check.cfg.algorithm
    advantage: AdvantageConfig = algorithm.advantage
    if isinstance(advantage, GroupFilterConfig):
        bounds = ("rewards_lower_bound", "rewards_upper_bound")
        if not advantage.filter_rewards:
            check.unused(advantage, bounds, "algorithm", "without algorithm.filter_rewards")
        else:
            _check_bounds(advantage, check)
    check.unused(algorithm, advantage.unused_keys, "algorithm", f"by adv_type={algorithm.adv_type}")


def check_teacher(check: Check[EmbodiedConfig]) -> None:
    """A teacher is compared with, has weights, and distillation has one."""
    algorithm = check.cfg.algorithm
    section, path = algorithm.teacher, "algorithm.teacher"
    names = f"adv_type={algorithm.adv_type} with loss_type={algorithm.loss_type}"
    if algorithm.advantage.needs_reference and not isinstance(algorithm.loss, RegularizedLossConfig):
        check.problem(
            "algorithm.loss_type", f"received {algorithm.loss_type}, which weights no advantages. Set it to opd."
        )
    if section is None:
        if algorithm.advantage.needs_reference:
            check.problem(
                path, f"missing; adv_type={algorithm.adv_type} learns from a teacher. Set {path}.ckpt_path, say."
            )
        return
    if not algorithm.needs_reference:
        check.problem(
            path,
            f"{names} compares with no other policy. Remove it, or set algorithm.adv_type=opd or algorithm.kl_beta.",
        )
    check_weights(check, section, path)


def check_weights(check: Check[EmbodiedConfig], section: FrozenPolicyKeys, path: str) -> None:
    """A second policy has weights from one place.

    Args:
        check: Of the recipe.
        section: What the second policy is.
        path: Of the section.
    """
    its_model = section.model or check.cfg.actor.model
    if section.model_path is not None and not isinstance(its_model, VLAConfig):
        check.problem(
            f"{path}.model_path",
            f"received {section.model_path}; model_type={its_model.model_type} is not read from a folder. Set "
            f"{path}.ckpt_path instead.",
        )
    elif section.model_path is not None and section.model is not None:
        check.problem(f"{path}.model_path", f"{path}.model has a model_path of its own. Remove one of them.")
    elif section.ckpt_path is None and not its_model.carries_weights:
        check.problem(
            f"{path}.ckpt_path",
            f"missing; model_type={its_model.model_type} has random weights without it. Set it to what a run has "
            "saved: results/<name>/checkpoints/global_step_<N>.",
        )


def check_recomputed_logprobs(check: Check[EmbodiedConfig]) -> None:
    """The actor's log-probabilities stand for the rollout's where its weights acted, and a ratio is formed."""
    algorithm = check.cfg.algorithm
    if not algorithm.recompute_logprobs:
        return
    for is_wrong, reason in (
        (algorithm.loss.learner != "on_policy", "forms no ratio to the policy that acted"),
        (algorithm.loss.needs_proximal_logprobs, "recomputes them for its proximal policy"),
        (algorithm.staleness_threshold is not None, "with staleness_threshold compares with older weights that acted"),
    ):
        if is_wrong:
            check.problem(
                "algorithm.recompute_logprobs",
                f"received True; loss_type={algorithm.loss_type} {reason}. Set algorithm.recompute_logprobs=false.",
            )
            return


def _check_bounds(advantage: GroupFilterConfig, check: Check[RLinfConfig]) -> None:
    lower, upper = advantage.rewards_lower_bound, advantage.rewards_upper_bound
    if lower is not None and upper is not None and lower >= upper:
        check.problem(
            "algorithm.rewards_lower_bound",
            f"received {lower}; must be below algorithm.rewards_upper_bound {upper}, or every group is masked. "
            "Lower it.",
        )


def check_loss_keys(check: Check[EmbodiedConfig]) -> None:
    """Keys of the loss that have no effect, or no meaning."""
    loss = check.cfg.algorithm.loss
    if not isinstance(loss, RegularizedLossConfig):
        return
    if isinstance(loss, PPOLossConfig) and loss.clip_ratio_c is not None and loss.clip_ratio_c <= 1:
        check.problem(
            "algorithm.clip_ratio_c",
            f"received {loss.clip_ratio_c}; allowed: a number > 1, or null for no dual clip. Set it to 3.0.",
        )
    if isinstance(loss, (PPOLossConfig, GSPOLossConfig)) and loss.clip_ratio_low >= 1:
        check.problem(
            "algorithm.clip_ratio_low",
            f"received {loss.clip_ratio_low}; the ratio is clipped from below at 1 - {loss.clip_ratio_low}: allowed: a "
            "number in (0, 1). Set it to 0.2.",
        )
    if isinstance(loss, DecoupledActorCriticLossConfig) and loss.behave_weight_threshold < 1:
        check.problem(
            "algorithm.behave_weight_threshold",
            f"received {loss.behave_weight_threshold}; samples of the policy itself have weight 1: allowed: a number "
            ">= 1. Set it to 2.0.",
        )
    if loss.kl_beta == 0:
        check.unused(loss, ("kl_penalty",), "algorithm", "while algorithm.kl_beta is 0")
    if loss.entropy_bonus == 0:
        check.unused(check.cfg.algorithm, ("entropy_type",), "algorithm", "while algorithm.entropy_bonus is 0")


def check_early_stop(check: Check[EmbodiedConfig]) -> None:
    """Only updates by ratios of the current to the old policy know how far it has gone."""
    algorithm = check.cfg.algorithm
    if algorithm.loss.learner != "on_policy" or not algorithm.loss.needs_logprobs:
        check.unused(algorithm, ("early_stop_kl",), "algorithm", f"by loss_type={algorithm.loss_type}")


RULES = (
    check_value_head,
    check_levels,
    check_groups,
    check_advantage_keys,
    check_teacher,
    check_recomputed_logprobs,
    check_loss_keys,
    check_early_stop,
)
