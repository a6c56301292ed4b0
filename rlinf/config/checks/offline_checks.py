"""What losses need that learn from recorded or labelled actions, and whether a run has what its kind learns from."""

from __future__ import annotations

from rlinf.config.checks.algorithm_checks import check_weights
from rlinf.config.checks.recipe_check import Check
from rlinf.config.schema.algorithm import (
    DAggerLossConfig,
    ImitationLossConfig,
    IQLLossConfig,
    SupervisedLossConfig,
)
from rlinf.config.schema.data import LeRobotDataConfig
from rlinf.config.schema.env import NoEnvConfig
from rlinf.config.schema.expert import PolicyExpertConfig
from rlinf.config.schema.intervention import InterventionConfig
from rlinf.config.schema.model import MLPPolicyConfig
from rlinf.config.schema.root import CollectConfig, EmbodiedConfig
from rlinf.config.schema.vla import FlowVLAConfig, VLAConfig


def check_source(check: Check[EmbodiedConfig]) -> None:
    """An offline run learns from data, any other from environments."""
    cfg = check.cfg
    if isinstance(cfg, CollectConfig):
        return
    offline, loss_type = cfg.runner.task_type == "offline", cfg.algorithm.loss_type
    if offline != cfg.algorithm.loss.learns_offline:
        remedy = "embodied, and use its script" if offline else "offline, with a data section"
        check.problem(
            "runner.task_type",
            f"received {cfg.runner.task_type}; loss_type={loss_type} learns from "
            f"{'rollouts' if offline else 'recorded data'}. Set runner.task_type={remedy}.",
        )
        return
    if offline and cfg.data is None:
        check.problem("data", "missing; task_type=offline learns from it. Add data.format and data.path.")
    if not offline and cfg.data is not None and not cfg.actor.sft_loss_weight:
        check.problem(
            "data",
            f"not used by loss_type={loss_type}, which learns from rollouts. Remove the section, or set "
            "actor.sft_loss_weight to train on its frames as well.",
        )
    if offline and cfg.env.train != NoEnvConfig():
        check.problem(
            "env.train", "not used by task_type=offline, which learns from data. Remove it; evaluate in env.eval."
        )
    if not offline and isinstance(cfg.env.train, NoEnvConfig):
        check.problem("env.train", f"missing; task_type={cfg.runner.task_type} learns from it. Add the section.")
    if isinstance(cfg.env.eval, NoEnvConfig):
        check.problem(
            "env.eval.env_type", "received none; evaluation needs environments. Remove env.eval, or choose one."
        )


def check_co_training(check: Check[EmbodiedConfig]) -> None:
    """Frames next to rollouts are for losses on rollouts, and for models with a loss of their own."""
    cfg, actor = check.cfg, check.cfg.actor
    if not actor.sft_loss_weight:
        check.unused(actor, ("sft_batch_size",), "actor", "without actor.sft_loss_weight")
        return
    key, received = "actor.sft_loss_weight", f"received {actor.sft_loss_weight:g}"
    loss = cfg.algorithm.loss
    if loss.draws_batches or loss.learns_offline:
        allowed = "on-policy losses such as actor_critic"
        check.problem(
            key,
            f"{received}; loss_type={cfg.algorithm.loss_type} takes no frames next to it; allowed: {allowed}. Set 0.",
        )
        return
    if not isinstance(actor.model, VLAConfig):
        check.problem(
            key, f"{received}; model_type={actor.model.model_type} has no supervised loss on frames. Set it to 0."
        )
    if not isinstance(cfg.data, LeRobotDataConfig):
        found = "there is no data section" if cfg.data is None else f"data.format={cfg.data.format}"
        check.problem(key, f"{received}, and {found}. Add data.format=lerobot and data.path, or set it to 0.")
    else:
        check.unused(cfg.data, ("reward_coef",), "data", "by actor.sft_loss_weight")
    size, ranks = actor.sft_batch_size, check.world.actor or 1
    if size is not None and size % ranks:
        check.problem(
            "actor.sft_batch_size", f"received {size}; must be a multiple of the {ranks} actor ranks. Set {ranks}."
        )


def check_unused(check: Check[EmbodiedConfig]) -> None:
    """Keys that are of no use to these losses."""
    cfg = check.cfg
    algorithm, actor = cfg.algorithm, cfg.actor
    if not isinstance(algorithm.loss, (ImitationLossConfig, IQLLossConfig, SupervisedLossConfig)):
        return
    reason = f"by loss_type={algorithm.loss_type}"
    levels = ("reward_type", "logprob_type", "entropy_type")
    check.unused(algorithm, levels, "algorithm", reason)
    check.unused(actor.optim, ("value_lr", "critic_warmup_steps"), "actor.optim", reason)
    if isinstance(algorithm.loss, (ImitationLossConfig, SupervisedLossConfig)):
        check.unused(actor.model, ("add_value_head",), "actor.model", reason)
    if algorithm.loss.learns_offline:
        check.unused(algorithm, ("staleness_threshold",), "algorithm", reason)
        check.unused(cfg.rollout, ("pipeline_stage_num",), "rollout", "by task_type=offline")
        check.unused(cfg.runner, ("dump_steps",), "runner", "by task_type=offline, whose steps sample from a replay")


def check_imitation(check: Check[EmbodiedConfig]) -> None:
    """Distances are those between continuous actions; a flow is not imitated by likelihood."""
    loss, model = check.cfg.algorithm.loss, check.cfg.actor.model
    if not isinstance(loss, ImitationLossConfig):
        return
    path, received = "algorithm.imitation_loss", f"received {loss.imitation_loss}; model_type={model.model_type}"
    if isinstance(model, FlowVLAConfig) and loss.imitation_loss != "model":
        check.problem(path, f"{received} has no likelihood of actions that others chose. Set it to model.")
    if not isinstance(model, VLAConfig) and loss.imitation_loss == "model":
        check.problem(path, f"{received} is published with no loss of its own. Set it to nll.")
    if not isinstance(model, MLPPolicyConfig):
        return
    if loss.imitation_loss == "mse" and model.discrete:
        check.problem(
            "algorithm.imitation_loss",
            "received mse; actor.model.discrete=true has no distance between actions. Set it to nll.",
        )


def check_supervised(check: Check[EmbodiedConfig]) -> None:
    """Models with a loss of their own, on frames; mixtures and augmentation are for them alone."""
    cfg = check.cfg
    data, model = cfg.data, cfg.actor.model
    if not isinstance(cfg.algorithm.loss, SupervisedLossConfig):
        if isinstance(data, LeRobotDataConfig) and not cfg.actor.sft_loss_weight:
            reason = f"by loss_type={cfg.algorithm.loss_type}"
            check.unused(data, ("weight", "mixture", "augmentation"), "data", reason)
        return
    if not isinstance(model, VLAConfig):
        check.problem(
            "actor.model.model_type",
            f"received {model.model_type}; loss_type=embodied_sft trains vision-language-action policies. Choose one, "
            "or algorithm.loss_type=embodied_bc.",
        )
    if data is not None and not isinstance(data, LeRobotDataConfig):
        check.problem(
            "data.format", f"received {data.format}; loss_type=embodied_sft reads frames. Set data.format=lerobot."
        )
    elif data is not None:
        check.unused(data, ("reward_coef",), "data", "by loss_type=embodied_sft")


def check_dagger(check: Check[EmbodiedConfig]) -> None:
    """The expert acts by chance or by distance; in chunks a scripted one acts by chance, and no operator next to it."""
    cfg = check.cfg
    loss: object = cfg.algorithm.loss
    if not isinstance(loss, DAggerLossConfig):
        return
    if cfg.labelled_in_env is not None and loss.takeover_distance is not None:
        check.problem(
            "algorithm.takeover_distance",
            f"received {loss.takeover_distance:g}; expert_type=scripted acts in chunks of "
            f"num_action_chunks={cfg.actor.model.num_action_chunks} by chance. Set algorithm.beta, or let the script "
            "take over within chunks: algorithm.loss_type=embodied_hgdagger, and in env.train.wrappers 'intervention' "
            "with intervener_type: scripted.",
        )
    intervenes = any(isinstance(entry, InterventionConfig) for entry in cfg.env.train.wrappers)
    if cfg.labelled_in_env is not None and intervenes:
        check.problem(
            "env.train.wrappers",
            "holds 'intervention'; algorithm.expert with expert_type=scripted acts in its place in chunks of actions. "
            "Remove the wrapper, or set algorithm.loss_type=embodied_hgdagger.",
        )
    if isinstance(loss.expert, PolicyExpertConfig):
        check_weights(check, loss.expert, "algorithm.expert")
    if loss.takeover_distance is not None:
        unused = ("beta", "beta_decay")
        check.unused(loss, unused, "algorithm", "with algorithm.takeover_distance")


def check_iql(check: Check[EmbodiedConfig]) -> None:
    """The value head predicts an expectile that exists."""
    cfg = check.cfg
    loss: object = cfg.algorithm.loss
    if not isinstance(loss, IQLLossConfig):
        return
    model = cfg.actor.model
    if model.q_head_type == "crossq":
        check.problem(
            "actor.model.q_head_type",
            f"received crossq; loss_type={cfg.algorithm.loss_type} needs target critics. Set it to default.",
        )
    if isinstance(model, MLPPolicyConfig):
        check.unused(model, ("deterministic", "exploration_noise"), "actor.model", "by offline_iql")
    if not 0 < loss.expectile < 1:
        check.problem("algorithm.expectile", f"received {loss.expectile}; allowed: a number in (0, 1). Set it to 0.7.")
    if not cfg.actor.model.add_value_head:
        check.problem(
            "actor.model.add_value_head",
            f"received False; loss_type={cfg.algorithm.loss_type} needs values. Set actor.model.add_value_head=true.",
        )


RULES = (check_source, check_co_training, check_unused, check_imitation, check_supervised, check_dagger, check_iql)
