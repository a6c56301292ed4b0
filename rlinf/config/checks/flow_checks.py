"""What flow policies need of the loss, and losses of flow policies."""

from __future__ import annotations

import math

from rlinf.config.checks.recipe_check import Check
from rlinf.config.schema.algorithm import NFTLossConfig, RegularizedLossConfig
from rlinf.config.schema.model import FlowPolicyConfig
from rlinf.config.schema.root import EmbodiedConfig


def check_noise_method(check: Check[EmbodiedConfig]) -> None:
    """A loss of log-probabilities needs noise in the steps, one that tunes the entropy noise that is learned."""
    cfg = check.cfg
    model, loss_type = cfg.actor.model, cfg.algorithm.loss_type
    if not isinstance(model, FlowPolicyConfig):
        return
    if model.add_q_head and model.noise_method != "flow_noise":
        check.problem(
            "actor.model.noise_method",
            f"received {model.noise_method}; with Q heads the noise is learned. Set actor.model.noise_method="
            "flow_noise.",
        )
    elif model.noise_method == "flow_ode" and cfg.algorithm.loss.needs_logprobs:
        check.problem(
            "actor.model.noise_method",
            f"received flow_ode; loss_type={loss_type} needs log-probabilities, which only noise in the steps gives. "
            "Set actor.model.noise_method=flow_sde or flow_noise.",
        )


def check_noise_level(check: Check[EmbodiedConfig]) -> None:
    """The size of the noise: whether it is used, possible, and moved by an entropy bonus."""
    model, loss = check.cfg.actor.model, check.cfg.algorithm.loss
    if not isinstance(model, FlowPolicyConfig):
        return
    if model.noise_method == "flow_ode":
        check.unused(model, ("noise_level",), "actor.model", "by noise_method=flow_ode")
    if model.noise_method == "flow_noise" and not -5 < math.log(model.noise_level) < 2:
        check.problem(
            "actor.model.noise_level",
            f"received {model.noise_level}; noise_method=flow_noise keeps it in (0.007, 7.3). Set it to 0.2.",
        )
    if model.noise_method == "flow_sde" and isinstance(loss, RegularizedLossConfig) and loss.entropy_bonus > 0:
        check.problem(
            "algorithm.entropy_bonus",
            f"received {loss.entropy_bonus}; the entropy of noise_method=flow_sde is constant. Set it to 0, or "
            "actor.model.noise_method=flow_noise.",
        )


def check_velocity_loss(check: Check[EmbodiedConfig]) -> None:
    """A loss of velocities needs a flow that nothing but its velocity shapes, and uses no log-probabilities."""
    algorithm, model = check.cfg.algorithm, check.cfg.actor.model
    loss = algorithm.loss
    if not isinstance(loss, NFTLossConfig):
        return
    reason = f"by loss_type={algorithm.loss_type}"
    check.unused(algorithm, ("logprob_type", "entropy_type"), "algorithm", reason)
    other = "dpo_beta" if loss.nft_loss_form == "mse" else "nft_clip_ratio"
    check.unused(loss, (other,), "algorithm", f"by nft_loss_form={loss.nft_loss_form}")
    if not model.add_value_head:
        names = ("value_loss_coef", "value_clip", "huber_delta")
        check.unused(loss, names, "algorithm", "without actor.model.add_value_head")
    if not model.has_velocity:
        check.problem(
            "actor.model.model_type",
            f"received {model.model_type}; loss_type={algorithm.loss_type} trains the velocity of a flow. Set "
            "actor.model.model_type=flow_policy or openpi.",
        )
    if isinstance(model, FlowPolicyConfig) and model.noise_method == "flow_noise":
        check.problem(
            "actor.model.noise_method",
            f"received flow_noise; loss_type={algorithm.loss_type} does not train the noise. Set "
            "actor.model.noise_method=flow_ode.",
        )


RULES = (check_noise_method, check_noise_level, check_velocity_loss)
