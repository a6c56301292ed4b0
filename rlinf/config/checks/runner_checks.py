"""Length, evaluation, checkpoints, schedules and the settings of environments and models on their own."""

from __future__ import annotations

from rlinf.config.checks.recipe_check import Check
from rlinf.config.problems import describe_value
from rlinf.config.schema.algorithm import SACLossConfig
from rlinf.config.schema.env import GymnasiumEnvConfig, ManiSkillEnvConfig, NoEnvConfig
from rlinf.config.schema.model import CameraPolicyConfig, FlowPolicyConfig, MLPPolicyConfig, StatePolicyConfig
from rlinf.config.schema.optim import AdamWConfig
from rlinf.config.schema.root import EmbodiedConfig, RLinfConfig

SMALLEST_IMAGE = 16
"""Pixels of height and width that every encoder can take."""


def check_intervals(check: Check[EmbodiedConfig]) -> None:
    """An interval is positive, or -1 for never."""
    for name in ("max_steps", "val_check_interval", "save_interval"):
        value = getattr(check.cfg.runner, name)
        if value != -1 and value < 1:
            check.problem(f"runner.{name}", f"received {value}; allowed: an integer > 0, or -1. Set it to -1 for none.")


def check_evaluation(check: Check[EmbodiedConfig]) -> None:
    """Evaluation has environments, finishes episodes, and happens where something depends on it."""
    runner, evaluation = check.cfg.runner, check.cfg.env.eval
    evaluates = runner.val_check_interval > 0 or runner.only_eval
    if evaluates and evaluation is None:
        cause = (
            "runner.only_eval=true" if runner.only_eval else f"runner.val_check_interval={runner.val_check_interval}"
        )
        check.problem("env.eval", f"missing; {cause} evaluates. Add the section, or set runner.val_check_interval=-1.")
    if not evaluates:
        for name, value in (("keep_best", runner.keep_best), ("stop_at", runner.stop_at)):
            if value:
                check.problem(
                    f"runner.{name}",
                    f"received {value!r}; it needs evaluations, and runner.val_check_interval is "
                    f"{runner.val_check_interval}. Set runner.val_check_interval to 10, say.",
                )
    if evaluation is not None and evaluation.max_steps_per_rollout_epoch < evaluation.max_episode_steps:
        check.problem(
            "env.eval.max_steps_per_rollout_epoch",
            f"received {evaluation.max_steps_per_rollout_epoch}; episodes last up to env.eval.max_episode_steps "
            f"{evaluation.max_episode_steps}, so only the short ones would be counted. Set it to at least "
            f"{evaluation.max_episode_steps}.",
        )


def check_start_states(check: Check[EmbodiedConfig]) -> None:
    """An evaluation begins from other states than training; ordered ones are 0, 1, 2, ... in both."""
    train, evaluation = check.cfg.env.train, check.cfg.env.eval
    if evaluation is None or evaluation.env_type != train.env_type:
        return
    if train.use_ordered_reset_state_ids and evaluation.use_ordered_reset_state_ids:
        check.problem(
            "env.train.use_ordered_reset_state_ids",
            "received true, as env.eval.use_ordered_reset_state_ids; both begin with the states 0, 1, 2, ..., for "
            "any seeds, so the policy would be evaluated where it has learned. Set it to false in env.train.",
        )


def check_num_start_states(check: Check[EmbodiedConfig]) -> None:
    """An evaluation that says how many start states it plays goes through them in order, each once."""
    train, evaluation = check.cfg.env.train, check.cfg.env.eval
    check.unused(train, ("num_start_states",), "env.train", "by training, which may begin from a state again")
    if evaluation is None or evaluation.num_start_states is None:
        return
    path, wanted = "env.eval.num_start_states", evaluation.num_start_states
    if not evaluation.use_ordered_reset_state_ids or evaluation.use_fixed_reset_state_ids:
        check.problem(
            path,
            f"received {wanted}; sampled or fixed start states may repeat. Set "
            "env.eval.use_ordered_reset_state_ids=true and env.eval.use_fixed_reset_state_ids=false, or "
            f"{path}=null.",
        )
        return
    groups, epochs = evaluation.num_groups, evaluation.rollout_epoch
    episodes = evaluation.num_counted_episodes(check.cfg.actions_per_chunk("eval"))
    played = groups * evaluation.group_size * epochs * episodes
    if not 0 <= played - wanted < groups or evaluation.group_size > 1:
        check.problem(
            path,
            f"received {wanted}; {groups} groups of {evaluation.group_size} x {epochs} rollout epochs x {episodes} "
            f"episodes that are counted = {played} episodes from {groups * epochs * episodes} start states. Change "
            "env.eval.total_num_envs, group_size or rollout_epoch; for a part of the start states set "
            f"{path}={groups * epochs * episodes}{' and group_size=1' if evaluation.group_size > 1 else ''}, or null.",
        )


def check_schedule(check: Check[EmbodiedConfig]) -> None:
    """A falling learning rate has an end, behind its warm-up."""
    cfg = check.cfg
    sections: list[tuple[str, AdamWConfig]] = [("actor.optim", cfg.actor.optim)]
    if cfg.actor.critic_optim is not None:
        sections.append(("actor.critic_optim", cfg.actor.critic_optim))
    if isinstance(cfg.algorithm.loss, SACLossConfig):
        sections.append(("algorithm.entropy_tuning.optim", cfg.algorithm.loss.entropy_tuning.optim))
    for path, optim in sections:
        check_optimizer(optim, path, check)


def check_optimizer(optim: AdamWConfig, path: str, check: Check[RLinfConfig], *, ends_with_run: bool = False) -> None:
    """Note what is wrong with the schedule of one optimizer.

    Args:
        optim: Its section.
        path: Dotted path of the section.
        check: The validation.
        ends_with_run: Whether a schedule without an end takes the run's.
    """
    if optim.lr_scheduler == "constant":
        unused = ("total_training_steps", "min_lr_ratio")
        check.unused(optim, unused, path, "by lr_scheduler=constant")
    elif optim.total_training_steps is None:
        if ends_with_run:
            return
        check.problem(
            f"{path}.total_training_steps",
            f"missing; lr_scheduler={optim.lr_scheduler} needs the optimizer step at which it has ended. Set it to "
            f"the optimizer steps of the run (`rlinf plan` prints them), or {path}.lr_scheduler=constant.",
        )
    elif optim.lr_warmup_steps >= optim.total_training_steps:
        check.problem(
            f"{path}.lr_warmup_steps",
            f"received {optim.lr_warmup_steps}; must be below {path}.total_training_steps "
            f"{optim.total_training_steps}. Lower it.",
        )


def check_names(check: Check[EmbodiedConfig]) -> None:
    """Names that become folders or worker groups differ."""
    name = check.cfg.runner.logger.experiment_name
    if not name.strip() or name in {".", ".."} or not name.isprintable() or {*"/\\"} & {*name}:
        check.problem(
            "runner.logger.experiment_name",
            f"received {name!r}; it names a folder: allowed: a name without slashes or control characters. Choose "
            "another.",
        )
    groups = check.cfg.group_names
    for section, group in groups.items():
        others = [other for other, label in groups.items() if label == group and other < section]
        if others:
            check.problem(
                f"{section}.group_name",
                f"received '{group}', which is also {others[0]}.group_name; names must differ. Remove one to take "
                "its default.",
            )


def check_environments(check: Check[EmbodiedConfig]) -> None:
    """Settings of single environments that the schema cannot express."""
    for path, env in (("env.train", check.cfg.env.train), ("env.eval", check.cfg.env.eval)):
        if isinstance(env, (GymnasiumEnvConfig, ManiSkillEnvConfig)) and not isinstance(env.init_params.get("id"), str):
            example = "CartPole-v1" if isinstance(env, GymnasiumEnvConfig) else "PushCube-v1"
            check.problem(
                f"{path}.init_params.id",
                f"received {describe_value(env.init_params.get('id'))}; required: the Gymnasium id of the environment, "
                f"for example {example}. Add it.",
            )
        if isinstance(env, GymnasiumEnvConfig) and env.init_params.keys() & {"max_episode_steps", "num_envs"}:
            for key in sorted(env.init_params.keys() & {"max_episode_steps", "num_envs"}):
                target = "max_episode_steps" if key == "max_episode_steps" else "total_num_envs"
                check.problem(
                    f"{path}.init_params.{key}", f"not allowed here; write {path}.{target}, which decides it."
                )


def check_cameras(check: Check[EmbodiedConfig]) -> None:
    """A model of images names its cameras and their size."""
    model = check.cfg.actor.model
    if not isinstance(model, CameraPolicyConfig):
        return
    if isinstance(model, FlowPolicyConfig) and not model.image_keys:
        keys = ("image_size", "num_frames", "encoder", "latent_dim", "random_shift")
        check.unused(model, keys, "actor.model", "without actor.model.image_keys")
        if model.obs_dim == 0:
            check.problem(
                "actor.model.obs_dim", "received 0; without actor.model.image_keys the policy sees nothing. Remove it."
            )
        return
    if not model.image_keys or len(set(model.image_keys)) < len(model.image_keys):
        check.problem(
            "actor.model.image_keys",
            f"received {model.image_keys}; allowed: one or more different keys. Set it to [main_images].",
        )
    size = model.image_size
    if size is not None and (len(size) != 2 or min(size) < SMALLEST_IMAGE):
        check.problem(
            "actor.model.image_size",
            f"received {size}; allowed: [height, width], each at least {SMALLEST_IMAGE} pixels. Set it to "
            "the size of the environment's images.",
        )
    if model.obs_dim == 0:
        check.unused(model, ("normalize_obs",), "actor.model", "while actor.model.obs_dim is 0")
    if not model.add_q_head:
        check.unused(model, ("random_shift",), "actor.model", "without actor.model.add_q_head")


def check_sizes_known(check: Check[EmbodiedConfig]) -> None:
    """Sizes that the recipe leaves out can be taken from an environment."""
    cfg = check.cfg
    model = cfg.actor.model
    if cfg.env.eval is not None or not isinstance(cfg.env.train, NoEnvConfig):
        return
    if isinstance(model, StatePolicyConfig):
        sizes: dict[str, object] = {"obs_dim": model.obs_dim, "action_dim": model.action_dim}
        if isinstance(model, CameraPolicyConfig) and model.image_keys:
            sizes["image_size"] = model.image_size
        for key, size in sizes.items():
            if size is None:
                check.problem(
                    f"actor.model.{key}", "missing; there is no environment to take it from. Give that of the data set."
                )


def check_model(check: Check[EmbodiedConfig]) -> None:
    """Keys of the model that have no effect."""
    model = check.cfg.actor.model
    if not isinstance(model, MLPPolicyConfig):
        return
    if not model.normalize_obs:
        check.unused(model, ("obs_clip",), "actor.model", "without actor.model.normalize_obs")
    if model.discrete:
        gaussian = ("initial_log_std", "action_scale")
        check.unused(model, gaussian, "actor.model", "with actor.model.discrete")


RULES = (
    check_intervals,
    check_evaluation,
    check_start_states,
    check_num_start_states,
    check_schedule,
    check_names,
    check_environments,
    check_cameras,
    check_sizes_known,
    check_model,
)
