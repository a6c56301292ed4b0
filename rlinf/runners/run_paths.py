"""A run's folder, and the folders within it that an embodied recipe leaves to the run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from rlinf.config.schema.algorithm import EmbodiedAlgorithmConfig, OffPolicyLossConfig
from rlinf.config.schema.env import EnvConfig
from rlinf.config.schema.root import EmbodiedConfig, RLinfConfig
from rlinf.telemetry.rundir import DATASET_FOLDER, REPLAY_FOLDER


def run_folder(cfg: RLinfConfig) -> Path:
    """Return ``<log_path>/<experiment_name>``, absolute."""
    return Path(cfg.runner.logger.log_path).expanduser().absolute() / cfg.runner.logger.experiment_name


def with_run_paths(cfg: EmbodiedConfig) -> EmbodiedConfig:
    """Return the recipe with the folders that it leaves to the run filled in, for the workers."""

    def fill(env: EnvConfig, mode: str) -> EnvConfig:
        if env.video_cfg.video_base_dir is not None:
            return env
        folder = str(run_folder(cfg) / "video" / mode)
        return dataclasses.replace(env, video_cfg=dataclasses.replace(env.video_cfg, video_base_dir=folder))

    evaluation = None if cfg.env.eval is None else fill(cfg.env.eval, "eval")
    section = dataclasses.replace(cfg.env, train=fill(cfg.env.train, "train"), eval=evaluation)
    return dataclasses.replace(cfg, env=section, algorithm=_with_replay_folder(cfg.algorithm, run_folder(cfg)))


def video_folders(cfg: EmbodiedConfig) -> str | None:
    """Return where the run's videos go, separated by commas; None if none are made."""
    sections = [cfg.env.train, cfg.env.eval]
    folders = [env.video_cfg.video_base_dir for env in sections if env is not None and env.video_cfg.save_video]
    return ", ".join(str(folder) for folder in folders) or None


def with_dataset_folder(cfg: EmbodiedConfig) -> EmbodiedConfig:
    """Return the recipe with the folder of the data set that it collects, if it leaves that to the run."""
    env = cfg.env.eval
    if env is None or not env.data_collection.enabled or env.data_collection.save_dir is not None:
        return cfg
    collection = dataclasses.replace(env.data_collection, save_dir=str(run_folder(cfg) / DATASET_FOLDER))
    section = dataclasses.replace(cfg.env, eval=dataclasses.replace(env, data_collection=collection))
    return dataclasses.replace(cfg, env=section)


def _with_replay_folder(algorithm: EmbodiedAlgorithmConfig, run: Path) -> EmbodiedAlgorithmConfig:
    loss = algorithm.loss
    if not isinstance(loss, OffPolicyLossConfig) or loss.replay_buffer.folder is not None:
        return algorithm
    replay = dataclasses.replace(loss.replay_buffer, folder=str(run / REPLAY_FOLDER))
    return dataclasses.replace(algorithm, loss=dataclasses.replace(loss, replay_buffer=replay))
