"""What off-policy losses need, and what means nothing to them or to others."""

from __future__ import annotations

from rlinf.config.checks.recipe_check import Check
from rlinf.config.schema.algorithm import (
    CrossQLossConfig,
    LossConfig,
    NoAdvantageConfig,
    OffPolicyLossConfig,
    SACLossConfig,
)
from rlinf.config.schema.model import MLPPolicyConfig
from rlinf.config.schema.root import EmbodiedConfig


def check_family(check: Check[EmbodiedConfig]) -> None:
    """Advantages and Q heads are there where the loss uses them, and only there."""
    cfg = check.cfg
    algorithm, model = cfg.algorithm, cfg.actor.model
    draws, trains_q = algorithm.loss.draws_batches, algorithm.loss.trains_q_heads
    if draws != isinstance(algorithm.advantage, NoAdvantageConfig):
        remedy = algorithm.loss_type if draws else "gae, or another estimator"
        check.problem(
            "algorithm.adv_type",
            f"received {algorithm.adv_type}; loss_type={algorithm.loss_type} "
            f"{'uses no advantages' if draws else 'needs advantages'}. Set algorithm.adv_type={remedy}.",
        )
    if trains_q != model.add_q_head:
        check.problem(
            "actor.model.add_q_head",
            f"received {model.add_q_head}; loss_type={algorithm.loss_type} "
            f"{'needs' if trains_q else 'does not train'} Q heads. Set actor.model.add_q_head="
            f"{str(trains_q).lower()}.",
        )
    if not trains_q and cfg.actor.critic_optim is not None:
        check.problem(
            "actor.critic_optim",
            f"not used by loss_type={algorithm.loss_type}, which trains no Q heads. Remove it; for a value head, write "
            "actor.optim.value_lr.",
        )
    if not model.add_q_head:
        unused = ("num_q_heads", "q_head_type", "deterministic")
        check.unused(model, unused, "actor.model", "without actor.model.add_q_head")


def check_unused(check: Check[EmbodiedConfig]) -> None:
    """Keys that all algorithms share but off-policy ones."""
    algorithm = check.cfg.algorithm
    if not isinstance(algorithm.loss, OffPolicyLossConfig):
        return
    reason = f"by loss_type={algorithm.loss_type}"
    levels = ("reward_type", "logprob_type", "entropy_type")
    check.unused(algorithm, levels, "algorithm", reason)
    check.unused(check.cfg.actor.model, ("add_value_head",), "actor.model", reason)


def check_replay(check: Check[EmbodiedConfig]) -> None:
    """Updates begin at some time."""
    loss: LossConfig = check.cfg.algorithm.loss
    if not isinstance(loss, OffPolicyLossConfig):
        return
    replay = loss.replay_buffer
    if replay.min_buffer_size > replay.capacity:
        check.problem(
            "algorithm.replay_buffer.min_buffer_size",
            f"received {replay.min_buffer_size}; the replay never holds more than "
            f"algorithm.replay_buffer.capacity {replay.capacity}. Lower it.",
        )


def check_temperature(check: Check[EmbodiedConfig]) -> None:
    """A learned temperature is positive; a fixed one has no target and no optimizer."""
    loss: LossConfig = check.cfg.algorithm.loss
    if not isinstance(loss, SACLossConfig):
        return
    tuning, path = loss.entropy_tuning, "algorithm.entropy_tuning"
    if tuning.alpha_type == "fixed_alpha":
        check.unused(tuning, ("target_entropy", "optim"), path, "by alpha_type=fixed_alpha")
    elif tuning.initial_alpha == 0:
        check.problem(
            f"{path}.initial_alpha",
            f"received 0.0; alpha_type={tuning.alpha_type} learns a positive number: allowed: a number > 0. Set it to "
            "0.01, or alpha_type=fixed_alpha.",
        )


def check_critics(check: Check[EmbodiedConfig]) -> None:
    """The loss can train this kind of policy and critics, and targets need no more critics than there are."""
    cfg = check.cfg
    loss, model = cfg.algorithm.loss, cfg.actor.model
    if not isinstance(loss, OffPolicyLossConfig):
        return
    for key, allowed in loss.model_keys.items():
        value = getattr(model, key, allowed[0])
        if value not in allowed:
            check.problem(
                f"actor.model.{key}",
                f"received {value}; loss_type={cfg.algorithm.loss_type} trains {' or '.join(map(str, allowed))}. Set "
                f"actor.model.{key}={str(allowed[0]).lower()}.",
            )
    demos = loss.demo_buffer
    if demos is not None and demos.load_path is None and not demos.interventions:
        check.problem(
            "algorithm.demo_buffer.load_path",
            "missing; demonstrations come from a saved replay or from interventions. Set it, or "
            "algorithm.demo_buffer.interventions=true.",
        )
    if demos is not None and not demos.interventions:
        check.unused(demos, ("capacity",), "algorithm.demo_buffer", "without interventions")
    if loss.num_min_q is not None and loss.num_min_q > model.num_q_heads:
        check.problem(
            "algorithm.num_min_q",
            f"received {loss.num_min_q}; there are actor.model.num_q_heads {model.num_q_heads} critics. Lower it.",
        )
    if isinstance(loss, CrossQLossConfig):
        unused = ("tau", "target_update_freq")
        check.unused(loss, unused, "algorithm", f"by loss_type={cfg.algorithm.loss_type}: it has no targets")
    if model.q_head_type == "crossq":
        _check_batch_moments(check)


def _check_batch_moments(check: Check[EmbodiedConfig]) -> None:
    """Batch moments are those of the update's whole batch, taken once."""
    world = check.world
    actor = check.cfg.actor
    if world.actor and actor.micro_batch_size < (share := actor.global_batch_size // world.actor):
        check.problem(
            "actor.micro_batch_size",
            f"received {actor.micro_batch_size}; q_head_type=crossq normalises over the batch, so a rank takes all of "
            f"its actor.global_batch_size {actor.global_batch_size} / {world.actor} actor ranks at once. Set it to "
            f"{share}.",
        )
    if actor.fsdp_config.gradient_checkpointing:
        check.problem(
            "actor.fsdp_config.gradient_checkpointing",
            "received True; q_head_type=crossq counts every pass in its running moments, also a repeated one. Set it "
            "to false.",
        )


def check_squashed_model(check: Check[EmbodiedConfig]) -> None:
    """A squashed Gaussian needs continuous actions and bounds its standard deviation."""
    model = check.cfg.actor.model
    if not isinstance(model, MLPPolicyConfig) or not model.add_q_head:
        return
    if model.discrete:
        check.problem(
            "actor.model.discrete",
            "received True; Q heads value continuous actions. Set actor.model.discrete=false, or choose another "
            "algorithm.loss_type.",
        )
    if model.deterministic:
        check.unused(model, ("initial_log_std",), "actor.model", "with actor.model.deterministic")
    else:
        check.unused(model, ("exploration_noise",), "actor.model", "without actor.model.deterministic")
    if not -5 < model.initial_log_std < 2:
        check.problem(
            "actor.model.initial_log_std",
            f"received {model.initial_log_std}; a squashed Gaussian keeps it in (-5, 2). Set it to 0.0.",
        )


RULES = (check_family, check_unused, check_replay, check_temperature, check_critics, check_squashed_model)
