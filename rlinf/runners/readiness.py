"""What a run needs of this machine, looked at before anything is launched: a recipe alone cannot tell.

Imports neither torch nor Ray, so that the answer comes within a second.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

from rlinf.config.schema.root import LanguageConfig, RLinfConfig
from rlinf.errors import CheckpointError, ConfigError, MissingPackageError
from rlinf.models.model_path import require_model_path
from rlinf.telemetry.backends import check_backends

# Logs, metrics and the smallest of checkpoints need some of it.
MIN_FREE_BYTES = 16 << 20
_PACKAGES = ("torch", "ray")


def check_ready(cfg: RLinfConfig) -> None:
    """Look whether this machine has what the driver of a run needs.

    Args:
        cfg: The validated recipe.

    Raises:
        CheckpointError: ``runner.ckpt_path`` does not exist.
        ConfigError: Results cannot be written, a metric service is not logged in to, or the model is not there.
        MissingPackageError: A package that every run or a chosen metric service needs is not installed.
    """
    target = "reason" if isinstance(cfg, LanguageConfig) else "embodied"
    for package in _PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise MissingPackageError(
                f"The package '{package}' is not installed for {sys.executable}. Install it with: bash "
                f"requirements/install.sh {target}; or use the interpreter that has it: source .venv/bin/activate."
            )
    _check_disk(Path(cfg.runner.logger.log_path).expanduser().absolute())
    check_backends(cfg.runner.logger.logger_backends)
    weights = cfg.runner.ckpt_path
    if weights is not None and not Path(weights).expanduser().exists():
        raise CheckpointError(
            f"runner.ckpt_path: '{weights}' does not exist. Give a checkpoint folder (global_step_N), a .pt or a "
            ".safetensors file, or remove the key to begin with new weights."
        )
    if isinstance(cfg, LanguageConfig):
        require_model_path(cfg.actor.model.model_path)


def _check_disk(folder: Path) -> None:
    """Look whether results can be written below the nearest folder that there is."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    remedy = "Set runner.logger.log_path to a folder that you can write to."
    if not existing.is_dir():
        raise ConfigError(f"runner.logger.log_path: '{existing}' is a file, and results go below it. {remedy}")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ConfigError(f"runner.logger.log_path: '{existing}' cannot be written to. {remedy}")
    free = shutil.disk_usage(existing).free
    if free < MIN_FREE_BYTES:
        raise ConfigError(
            f"runner.logger.log_path: the disk of '{existing}' is full: {free / 2**20:.1f} MiB are free, and a run "
            f"needs {MIN_FREE_BYTES >> 20} MiB at the least. Free some space, or set runner.logger.log_path to a "
            "folder on a larger disk."
        )
