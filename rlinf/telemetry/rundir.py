"""The experiment's folder ``<log_path>/<experiment_name>``: who may use it, and what is recorded about the run."""

from __future__ import annotations

import dataclasses
import json
import platform
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from importlib import metadata
from pathlib import Path, PurePath
from typing import Any

from rlinf.errors import ConfigError
from rlinf.telemetry.backends import TENSORBOARD_FOLDER
from rlinf.telemetry.backends import VIDEO_FOLDER as VIDEO_FOLDER
from rlinf.telemetry.events import EVENTS_FILE
from rlinf.telemetry.logger import METRICS_FILE
from rlinf.telemetry.run_lock import locked
from rlinf.telemetry.trace_export import TRACE_FILE
from rlinf.utils.files import delete_leftover, rename_durably, write_atomic
from rlinf.utils.secrets import hide_for_record, hide_in_argument

CHECKPOINTS_FOLDER = "checkpoints"
CONFIG_FILE = "config.yaml"
RUN_FILE = "run.json"
PROFILE_FOLDER = "profile"
EVALUATIONS_FOLDER = "evaluations"
EVAL_RUNS_FOLDER = "eval_only"
"""Holds a folder for each run that only evaluated; they are no part of the training's record."""
REPLAY_FOLDER = "replay"
DATASET_FOLDER = "dataset"
SAMPLES_FOLDER = "samples"
DUMPS_FOLDER = "steps"
WORKER_LOGS_FOLDER = "worker_logs"
REPORT_FILE = "report.html"
_TRASH_PREFIX = ".trash_run_"

# What a run writes, and so what runner.overwrite deletes; anything else in the folder is the user's. The checkpoints
# come first: were the deletion killed after them, the next start would find a used folder and nothing to resume from.
_ARTIFACTS = (
    CHECKPOINTS_FOLDER,
    METRICS_FILE,
    TENSORBOARD_FOLDER,
    "wandb",
    "wandb_run_id",
    "swanlab",
    "swanlab_run_id",
    VIDEO_FOLDER,
    WORKER_LOGS_FOLDER,
    TRACE_FILE,
    PROFILE_FOLDER,
    EVALUATIONS_FOLDER,
    REPLAY_FOLDER,
    DATASET_FOLDER,
    DUMPS_FOLDER,
    SAMPLES_FOLDER,
    REPORT_FILE,
    EVENTS_FILE,
    "config.*.yaml",
    CONFIG_FILE,
    RUN_FILE,
)
_PACKAGES = (
    *("rlinf", "torch", "ray", "numpy", "gymnasium", "hydra-core", "omegaconf", "pydantic"),
    *("transformers", "vllm", "sglang", "mujoco", "metaworld", "mani-skill"),
)


def dump_folder(folder: Path, step: int) -> Path:
    """Return where a run keeps what a step started from; see ``runner.dump_steps``."""
    return folder / DUMPS_FOLDER / f"step_{step:08d}"


# Folders that this process has claimed.
_claimed: set[Path] = set()


@contextmanager
def claim_run_dir(log_path: str | Path, experiment_name: str, *, resume: bool, overwrite: bool) -> Iterator[Path]:
    """Take the experiment's folder for a run of this process; no other process can claim it within the block.

    A folder that this process has claimed already is yielded as it is. Nothing is recorded in the folder by that: a
    launch that fails leaves it as free as it was (see ``record_launch``).

    Args:
        log_path: ``runner.logger.log_path``.
        experiment_name: ``runner.logger.experiment_name``; a plain name or a relative path.
        resume: Whether the run goes on in this folder (``runner.resume_dir`` is set).
        overwrite: ``runner.overwrite``: delete the run that the folder holds.

    Yields:
        The folder, absolute.

    Raises:
        ConfigError: The name leaves ``log_path``, the folder holds a run and neither flag is set, or both are.
        RunLockedError: Another process works in the folder.
    """
    folder = _run_dir(log_path, experiment_name)
    if folder in _claimed:
        yield folder
        return
    _check_flags(resume=resume, overwrite=overwrite)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        check_run_dir(log_path, experiment_name, resume=resume, overwrite=overwrite)
        for leftover in folder.glob(f"{_TRASH_PREFIX}*"):
            delete_leftover(leftover)
        if overwrite:
            _delete_run(folder)
        _claimed.add(folder)
        try:
            yield folder
        finally:
            _claimed.discard(folder)


def check_run_dir(log_path: str | Path, experiment_name: str, *, resume: bool, overwrite: bool) -> None:
    """Check that a run may have the experiment's folder, as far as that can be seen without claiming it.

    Args:
        log_path: See ``claim_run_dir``.
        experiment_name: See ``claim_run_dir``.
        resume: See ``claim_run_dir``.
        overwrite: See ``claim_run_dir``.

    Raises:
        ConfigError: The name leaves ``log_path``, the folder holds a run and neither flag is set, or both are.
    """
    folder = _run_dir(log_path, experiment_name)
    _check_flags(resume=resume, overwrite=overwrite)
    used = signs_of_run(folder)
    if used and not resume and not overwrite:
        raise ConfigError(
            f"runner.logger.experiment_name={experiment_name}: {folder} already holds a run ({', '.join(used)}). "
            "Continue it with runner.resume_dir=auto, delete it and start anew with runner.overwrite=true, or "
            "choose another runner.logger.experiment_name"
        )


def _check_flags(*, resume: bool, overwrite: bool) -> None:
    if resume and overwrite:
        raise ConfigError(
            "runner.resume_dir continues a run and runner.overwrite=true deletes it; set one of the two "
            "(runner.resume_dir=null or runner.overwrite=false)"
        )


def signs_of_run(folder: Path) -> list[str]:
    """Return the names within a folder that say that it holds a run: checkpoints, or a recorded train step."""
    checkpoints = folder / CHECKPOINTS_FOLDER
    signs = {
        CHECKPOINTS_FOLDER: checkpoints.is_dir() and any(checkpoints.iterdir()),
        METRICS_FILE: _has_steps(folder / METRICS_FILE),
    }
    return [name for name, is_there in signs.items() if is_there]


def _has_steps(metrics: Path) -> bool:
    """Return whether a file of metrics has more than the evaluation before the first step."""
    if not metrics.is_file():
        return False
    with open(metrics, encoding="utf-8", errors="replace") as file:
        return any(line.strip() and not line.startswith('{"step": 0,') for line in file)


def _run_dir(log_path: str | Path, experiment_name: str) -> Path:
    name = PurePath(experiment_name)
    if not experiment_name.strip() or name.is_absolute() or ".." in name.parts or not name.parts:
        raise ConfigError(
            f"runner.logger.experiment_name is '{experiment_name}'; use a name for a folder below "
            "runner.logger.log_path"
        )
    return Path(log_path).expanduser().absolute() / name


def record_launch(
    folder: Path,
    experiment_name: str,
    *,
    config: object = None,
    seed: int | None = None,
    command: Sequence[str] | None = None,
    placement: str | None = None,
    run_id: str | None = None,
) -> None:
    """Record that a run begins, or goes on, in its folder.

    Writes ``config.yaml`` (a differing one of an earlier launch is kept as ``config.<n>.yaml``) and ``run.json`` (one
    entry a launch: time, run, host, command, seed, versions, git commit, placement). Keys and passwords are left out
    of both, see ``rlinf.utils.secrets.hide_for_record``.

    Args:
        folder: The experiment's folder, as ``claim_run_dir`` yields it.
        experiment_name: ``runner.logger.experiment_name``.
        config: The resolved recipe, a dataclass or a mapping; None writes no ``config.yaml``.
        seed: The run's seed.
        command: The command line; None takes this process's.
        placement: Where everything runs, as ``rlinf.placement.draw_plan`` returns it; None where unknown.
        run_id: The name by which ``rlinf status`` knows the launch; None where it has none.

    Raises:
        ConfigError: ``run.json`` cannot be read.
    """
    launch = {
        "started_at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "run_id": run_id,
        "resumed": bool(signs_of_run(folder)),
        "host": socket.gethostname(),
        "command": [hide_in_argument(part) for part in (command or (sys.executable, *sys.argv))],
        "seed": seed,
        "versions": package_versions(),
        "git": git_state(),
    }
    if placement is not None:
        launch["placement"] = placement
    record = {"experiment_name": experiment_name, "launches": [*_launches(folder), launch]}
    if config is not None:
        _write_config(folder, config)
    write_atomic(folder / RUN_FILE, json.dumps(record, indent=1) + "\n")


def _delete_run(folder: Path) -> None:
    trash = folder / f"{_TRASH_PREFIX}{uuid.uuid4().hex[:8]}"
    trash.mkdir()
    for artifact in _artifacts(folder):
        try:
            rename_durably(artifact, trash / artifact.name)
        except OSError as error:
            raise ConfigError(
                f"runner.overwrite=true: {artifact} of the former run cannot be moved away ({error.strerror}). Delete "
                "it by hand, or choose another runner.logger.experiment_name"
            ) from error
    delete_leftover(trash)


def _artifacts(folder: Path) -> Iterator[Path]:
    for pattern in _ARTIFACTS:
        yield from sorted(folder.glob(pattern))


def _write_config(folder: Path, config: object) -> None:
    from omegaconf import OmegaConf

    text = OmegaConf.to_yaml(OmegaConf.create(hide_for_record(_plain(config))))
    path = folder / CONFIG_FILE
    if path.exists() and path.read_text(encoding="utf-8") != text:
        earlier = len(list(folder.glob("config.*.yaml")))
        write_atomic(folder / f"config.{earlier + 1}.yaml", path.read_bytes())
    write_atomic(path, text)


def _plain(value: Any) -> Any:
    """Turn dataclasses, enumerations and paths into what YAML knows."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if isinstance(value, Enum):
        return _plain(value.value)
    return str(value) if isinstance(value, PurePath) else value


def _launches(folder: Path) -> list[Any]:
    path = folder / RUN_FILE
    if not path.exists():
        return []
    try:
        return list(json.loads(path.read_text(encoding="utf-8"))["launches"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} cannot be read ({error}); move it away to go on in this folder") from error


def package_versions() -> dict[str, str | None]:
    """Return the versions of what decides results, from package metadata: nothing is imported for it."""
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    return versions


def git_state() -> dict[str, Any] | None:
    """Return ``commit`` and ``changed`` of the working tree that holds the code, or None outside of one."""
    folder = Path(__file__).parent
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit.strip(), "changed": changes is None or bool(changes.strip())}


def _git(folder: Path, *arguments: str) -> str | None:
    # The timeout guards against a repository on a network file system that does not answer.
    command = ["git", "-C", str(folder), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
