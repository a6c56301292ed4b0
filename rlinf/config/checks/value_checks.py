"""Whether the sections of a recipe fit together that trains a model to judge frames, which no other recipe has."""

from __future__ import annotations

import re

from rlinf.config.checks.recipe_check import Check
from rlinf.config.checks.runner_checks import check_optimizer
from rlinf.config.schema.algorithm import NoAdvantageConfig, losses
from rlinf.config.schema.root import EmbodiedConfig, ValueConfig
from rlinf.config.schema.value import (
    FrameModelConfig,
    FrameValueLossConfig,
    RecapValueLossConfig,
    SteamValueLossConfig,
    SuccessClassifierConfig,
    SuccessLossConfig,
)


def check_loss(check: Check[ValueConfig]) -> None:
    """The loss judges as many frames as the model sees, and takes no advantages."""
    cfg = check.cfg
    loss, model = cfg.algorithm.loss, cfg.actor.model
    if not isinstance(loss, FrameValueLossConfig):
        check.problem(
            "algorithm.loss_type",
            f"received {cfg.algorithm.loss_type}; task_type=value learns to judge frames. Set it to recap_value, "
            "steam_value or success.",
        )
        return
    if type(loss) is not losses.configs.get(model.loss_type):
        check.problem(
            "algorithm.loss_type",
            f"received {cfg.algorithm.loss_type}; actor.model.model_type={model.model_type} learns by "
            f"{model.loss_type}. Set it to that, or choose the model that goes with it.",
        )
    if not isinstance(cfg.algorithm.advantage, NoAdvantageConfig):
        check.problem(
            "algorithm.adv_type", f"received {cfg.algorithm.adv_type}; recorded frames have none yet. Remove the key."
        )


def check_bins(check: Check[ValueConfig]) -> None:
    """Bins are enough, and those of distances are equally wide."""
    loss, model = check.cfg.algorithm.loss, check.cfg.actor.model
    if isinstance(model, SuccessClassifierConfig):
        if len(model.image_size) != 2:
            check.problem(
                "actor.model.image_size", f"received {model.image_size}; allowed: height and width. Set it to [64, 64]."
            )
        return
    path, bins = "actor.model.num_bins", model.output_size
    if bins < 2:
        check.problem(path, f"received {bins}; a distribution has 2 bins or more. Set it to 2.")
    elif isinstance(loss, SteamValueLossConfig) and (bins % 2 or 2 * loss.k % bins):
        check.problem(
            path,
            f"received {bins}; must be even and divide 2 x algorithm.k {loss.k} = {2 * loss.k} distances. Set it to "
            f"{2 * loss.k}, or to 2.",
        )


def check_words(check: Check[ValueConfig]) -> None:
    """Words are as sentences have them, and frames get other sentences only where the model reads them."""
    loss: object = check.cfg.algorithm.loss
    model = check.cfg.actor.model
    words = model.words if isinstance(model, SuccessClassifierConfig) else []
    wrong = sorted({word for word in words if re.fullmatch(r"\w+", word) is None or word != word.lower()})
    if wrong or len(set(words)) < len(words):
        check.problem(
            "actor.model.words",
            f"received {wrong or words}; allowed: single words in small letters, each once. Write [pick, up, the, "
            "cube] for 'Pick up the cube.'.",
        )
    if isinstance(loss, SuccessLossConfig) and not words:
        check.unused(loss, ("wrong_sentence_share",), "algorithm", "without actor.model.words")


def check_labels(check: Check[ValueConfig]) -> None:
    """Keys of labels have an effect, and percentiles are some."""
    cfg = check.cfg
    loss: object = cfg.algorithm.loss
    if isinstance(loss, SteamValueLossConfig):
        if loss.label_mode == "threshold":
            names: tuple[str, ...] = ("rollout_quantile", "expert_quantile")
        else:
            names = ("positive_threshold",)
        check.unused(loss, names, "algorithm", f"by label_mode={loss.label_mode}")
        if loss.length_scale_percentile is not None and loss.length_scale_percentile > 100:
            check.problem(
                "algorithm.length_scale_percentile",
                f"received {loss.length_scale_percentile:g}; allowed: a number in (0, 100]. Set it to 90.",
            )
    if cfg.data.advantage_tag is not None and not _names_a_file(cfg.data.advantage_tag):
        check.problem(
            "data.advantage_tag",
            f"received {cfg.data.advantage_tag!r}; it is part of a file's name: letters, digits, '_', '-' and '.'. "
            "Choose another.",
        )
    if cfg.data.advantage_tag is not None and cfg.data.max_episodes is not None:
        check.problem(
            "data.max_episodes",
            f"received {cfg.data.max_episodes}; labels of the name data.advantage_tag are of all episodes. Remove one "
            "of them.",
        )
    if cfg.data.advantage_tag is None and isinstance(loss, (RecapValueLossConfig, SteamValueLossConfig)):
        keys = (
            ("advantage_lookahead_step", "positive_quantile")
            if isinstance(loss, RecapValueLossConfig)
            else ("rollout_quantile", "expert_quantile", "positive_threshold", "label_mode")
        )
        check.unused(loss, keys, "algorithm", "without data.advantage_tag, with which frames are labelled")


def _names_a_file(tag: str) -> bool:
    return bool(tag) and all(letter.isalnum() or letter in "_-." for letter in tag)


def check_evaluation(check: Check[ValueConfig]) -> None:
    """Evaluations have data sets of their own, and happen where something depends on them."""
    runner, data = check.cfg.runner, check.cfg.data
    evaluates = runner.val_check_interval > 0
    if evaluates and not data.val:
        check.problem("data.val", "missing; the run evaluates. Name data sets, or set runner.val_check_interval=-1.")
    if not evaluates:
        check.unused(data, ("val", "max_val_frames") if not runner.only_eval else (), "data", "while nothing evaluates")
        for name, value in (("keep_best", runner.keep_best), ("stop_at", runner.stop_at)):
            if value:
                check.problem(
                    f"runner.{name}",
                    f"received {value!r}; it needs evaluations. Set runner.val_check_interval to 10, say.",
                )
    if runner.only_eval and not data.val and data.advantage_tag is None:
        check.problem(
            "runner.only_eval",
            "received True, and there is nothing to do. Name data sets in data.val, or labels in data.advantage_tag.",
        )
    if runner.only_eval and runner.ckpt_path is None and runner.resume_dir is None:
        check.problem(
            "runner.ckpt_path", "missing; only_eval=true judges by a trained model. Name a checkpoint of one."
        )


def check_batches(check: Check[ValueConfig]) -> None:
    """A global batch fills the micro-batches of all ranks."""
    actor, ranks = check.cfg.actor, check.world.actor or 1
    per_pass = actor.micro_batch_size * ranks
    if actor.global_batch_size % per_pass:
        check.problem(
            "actor.global_batch_size",
            f"received {actor.global_batch_size}; must be a multiple of micro_batch_size {actor.micro_batch_size} x "
            f"{ranks} actor rank(s) = {per_pass}. Set it to {-(-actor.global_batch_size // per_pass) * per_pass}.",
        )


def check_engine(check: Check[ValueConfig]) -> None:
    """The model is trained by FSDP; its schedule has an end."""
    actor = check.cfg.actor
    if actor.training_backend != "fsdp":
        check.problem(
            "actor.training_backend",
            f"received {actor.training_backend}; {actor.model.model_type} is trained by FSDP. Set it to fsdp.",
        )
    check_optimizer(actor.optim, "actor.optim", check)


def check_unused(check: Check[ValueConfig]) -> None:
    """Keys that have no effect on recorded frames."""
    cfg, reason = check.cfg, "by task_type=value"
    check.unused(cfg.algorithm, ("group_size", "staleness_threshold"), "algorithm", reason)
    check.unused(cfg.actor, ("sft_loss_weight", "sft_batch_size", "critic_optim"), "actor", reason)
    check.unused(cfg.actor.optim, ("critic_warmup_steps",), "actor.optim", reason)
    model = ("add_value_head", "add_q_head", "num_q_heads", "q_head_type", "num_action_chunks")
    check.unused(cfg.actor.model, model, "actor.model", reason)
    check.unused(cfg, ("weight_syncer",), "", reason)
    check.unused(cfg.runner, ("enable_decoupled_mode", "eval_initial_policy", "dump_steps"), "runner", reason)


def check_policy(check: Check[EmbodiedConfig]) -> None:
    """What judges frames does not act."""
    cfg = check.cfg
    if isinstance(cfg.actor.model, FrameModelConfig):
        check.problem(
            "actor.model.model_type",
            f"received {cfg.actor.model.model_type}, which judges frames; environments need a policy that acts. Choose "
            "one, or set runner.task_type=value.",
        )
    if isinstance(cfg.algorithm.loss, FrameValueLossConfig):
        check.problem(
            "algorithm.loss_type",
            f"received {cfg.algorithm.loss_type}, by which a model learns to judge frames. Set runner.task_type=value, "
            "or choose another loss.",
        )


RULES = (
    check_loss,
    check_bins,
    check_words,
    check_labels,
    check_evaluation,
    check_batches,
    check_engine,
    check_unused,
)
POLICY_RULES = (check_policy,)
