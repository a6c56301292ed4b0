"""The folder that a run works in, and the folders within it that an embodied recipe leaves to the run.

Training owns the folder of its experiment; an evaluation gets one of its own within it. Imports neither torch nor Ray.
"""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from rlinf.checkpoint.checkpoint_manager import CheckpointManager, checkpoint_step
from rlinf.config.schema.algorithm import EmbodiedAlgorithmConfig, OffPolicyLossConfig
from rlinf.config.schema.env import EnvConfig, NoEnvConfig
from rlinf.config.schema.root import EmbodiedConfig, RLinfConfig
from rlinf.errors import CheckpointError
from rlinf.telemetry.rundir import CHECKPOINTS_FOLDER, DATASET_FOLDER, EVAL_RUNS_FOLDER, REPLAY_FOLDER, claim_run_dir

ConfigT = TypeVar("ConfigT", bound=RLinfConfig)


def run_folder(cfg: RLinfConfig) -> Path:
    """Return ``<log_path>/<experiment_name>``, absolute."""
    return Path(cfg.runner.logger.log_path).expanduser().absolute() / cfg.runner.logger.experiment_name


def experiment_folder(cfg: RLinfConfig) -> Path:
    """Return the folder of the experiment, which an evaluation's own folder lies in."""
    folder = run_folder(cfg)
    return folder.parent.parent if folder.parent.name == EVAL_RUNS_FOLDER else folder


def reserve_run(cfg: ConfigT, stack: ExitStack) -> ConfigT:
    """Claim the folder of a run, unless this process has done so.

    Args:
        cfg: The recipe.
        stack: The folder is free again when it closes.

    Returns:
        The recipe; for an evaluation with a folder of its own, and with the checkpoint that ``auto`` stood for.

    Raises:
        ConfigError: See ``claim_run_dir``.
        RunLockedError: Another process works in the folder.
        CheckpointError: There is no such checkpoint, or an evaluation has no weights.
    """
    checkpoint = find_checkpoint(cfg)
    if cfg.runner.only_eval and experiment_folder(cfg) == run_folder(cfg):
        cfg = _with_evaluation_folder(cfg, checkpoint)
    runner = cfg.runner
    # ``auto`` may find a run that was killed before its first checkpoint: that run begins anew in its folder.
    resumes = runner.resume_dir is not None
    logger = runner.logger
    stack.enter_context(
        claim_run_dir(logger.log_path, logger.experiment_name, resume=resumes, overwrite=runner.overwrite)
    )
    return cfg


def with_newest_weights(cfg: ConfigT) -> ConfigT:
    """Return the recipe of an evaluation that names no weights with those of its experiment's newest checkpoint."""
    runner = cfg.runner
    if runner.resume_dir is not None or runner.ckpt_path is not None or runner.eval_initial_policy:
        return cfg
    return dataclasses.replace(cfg, runner=dataclasses.replace(runner, resume_dir="auto"))


def find_checkpoint(cfg: RLinfConfig) -> Path | None:
    """Return the checkpoint that a run continues from, or that an evaluation is of; None where there is none.

    Args:
        cfg: The recipe.

    Raises:
        CheckpointError: ``runner.resume_dir`` names no complete checkpoint, or an evaluation has no weights at all.
    """
    root = run_folder(cfg) / CHECKPOINTS_FOLDER
    checkpoint = CheckpointManager(root).resolve(cfg.runner.resume_dir)
    if checkpoint is not None or not cfg.runner.only_eval or _has_other_weights(cfg):
        return checkpoint
    looked = "none is named: runner.resume_dir and runner.ckpt_path are null"
    if cfg.runner.resume_dir is not None:
        looked = f"runner.resume_dir=auto finds no complete checkpoint in {root}"
    raise CheckpointError(
        f"runner.only_eval=true evaluates trained weights, and {looked}. Give runner.resume_dir=<a run's folder or a "
        "checkpoint>, check runner.logger.log_path, runner.logger.experiment_name and the working directory, or give "
        "runner.ckpt_path=<weights>; runner.eval_initial_policy=true evaluates the untrained policy."
    )


def _has_other_weights(cfg: RLinfConfig) -> bool:
    """Return whether an evaluation has a meaning without a checkpoint to resume from."""
    runner = cfg.runner
    if runner.ckpt_path is not None or runner.eval_initial_policy or cfg.actor.model.carries_weights:
        return True
    if not isinstance(cfg, EmbodiedConfig) or cfg.env.eval is None:
        return False
    return cfg.env.eval.data_collection.is_scripted


def _with_evaluation_folder(cfg: ConfigT, checkpoint: Path | None) -> ConfigT:
    """Make ``<experiment>/eval_only/<weights>_<n>``, and return the recipe with it as its experiment."""
    if checkpoint is not None:
        weights = f"step_{checkpoint_step(checkpoint):08d}"
    else:
        weights = "initial" if cfg.runner.ckpt_path is None else "weights"
    parent = run_folder(cfg) / EVAL_RUNS_FOLDER
    parent.mkdir(parents=True, exist_ok=True)
    folder = _make_numbered(parent, weights)
    name = f"{cfg.runner.logger.experiment_name}/{EVAL_RUNS_FOLDER}/{folder.name}"
    runner = dataclasses.replace(
        cfg.runner,
        logger=dataclasses.replace(cfg.runner.logger, experiment_name=name),
        resume_dir=None if checkpoint is None else str(checkpoint),
        # The folder is new: nothing is there to be deleted.
        overwrite=False,
    )
    return dataclasses.replace(cfg, runner=runner)


def _make_numbered(parent: Path, name: str) -> Path:
    """Make ``<name>_<n>`` with the lowest free number; two evaluations that begin at once get different ones."""
    number = 1
    while True:
        folder = parent / f"{name}_{number}"
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            return folder


def with_run_paths(cfg: EmbodiedConfig) -> EmbodiedConfig:
    """Return the recipe with the folders that it leaves to the run filled in, for the workers."""
    cfg = _with_dataset_folder(cfg)

    def fill(env: EnvConfig, mode: str) -> EnvConfig:
        if isinstance(env, NoEnvConfig) or env.video_cfg.video_base_dir is not None:
            return env
        folder = str(run_folder(cfg) / "video" / mode)
        return dataclasses.replace(env, video_cfg=dataclasses.replace(env.video_cfg, video_base_dir=folder))

    evaluation = None if cfg.env.eval is None else fill(cfg.env.eval, "eval")
    section = dataclasses.replace(cfg.env, train=fill(cfg.env.train, "train"), eval=evaluation)
    return dataclasses.replace(cfg, env=section, algorithm=_with_replay_folder(cfg.algorithm, run_folder(cfg)))


def with_dataset_folder(env: EnvConfig, folder: Path) -> EnvConfig:
    """Return the section of environments whose episodes become a data set in ``folder``."""
    return dataclasses.replace(env, data_collection=dataclasses.replace(env.data_collection, save_dir=str(folder)))


def video_folders(cfg: EmbodiedConfig) -> str | None:
    """Return where the run's videos go, separated by commas; None if none are made."""
    sections = [cfg.env.train, cfg.env.eval]
    folders = [env.video_cfg.video_base_dir for env in sections if env is not None and env.video_cfg.save_video]
    return ", ".join(str(folder) for folder in folders) or None


def _with_dataset_folder(cfg: EmbodiedConfig) -> EmbodiedConfig:
    """Fill in the folder of the data set that is collected: the experiment's, also where an evaluation collects it."""

    def fill(env: EnvConfig) -> EnvConfig:
        if not env.data_collection.enabled or env.data_collection.save_dir is not None:
            return env
        return with_dataset_folder(env, experiment_folder(cfg) / DATASET_FOLDER)

    evaluation = None if cfg.env.eval is None else fill(cfg.env.eval)
    return dataclasses.replace(cfg, env=dataclasses.replace(cfg.env, train=fill(cfg.env.train), eval=evaluation))


def _with_replay_folder(algorithm: EmbodiedAlgorithmConfig, run: Path) -> EmbodiedAlgorithmConfig:
    loss = algorithm.loss
    if not isinstance(loss, OffPolicyLossConfig) or loss.replay_buffer.folder is not None:
        return algorithm
    replay = dataclasses.replace(loss.replay_buffer, folder=str(run / REPLAY_FOLDER))
    return dataclasses.replace(algorithm, loss=dataclasses.replace(loss, replay_buffer=replay))
