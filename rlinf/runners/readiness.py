"""What a run needs of this machine, checked before anything is launched: a recipe alone does not show it.

Imports neither torch nor Ray, so that the error comes within a second. A check is a function in ``CHECKS`` that yields
an error for each thing that is missing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rlinf.config.parse import fields_of
from rlinf.config.problems import join
from rlinf.config.schema.algorithm import AlgorithmConfig
from rlinf.config.schema.base import ConfigSection
from rlinf.config.schema.model import CausalLMConfig
from rlinf.config.schema.root import EmbodiedConfig, LanguageConfig, RLinfConfig
from rlinf.config.schema.vla import VLAConfig
from rlinf.config.sections import ALGORITHM_PARTS
from rlinf.envs.readiness import check_env_config, imports_simulator
from rlinf.errors import CheckpointError, ConfigError, DatasetError, MissingPackageError, RLinfError
from rlinf.models.language.model_path import require_model_path
from rlinf.runners.output_paths import find_checkpoint
from rlinf.runners.rendering import rendering_differences
from rlinf.telemetry.backends import check_backends
from rlinf.telemetry.rundir import check_run_dir
from rlinf.utils.optional import is_installed, missing_package
from rlinf.utils.ray_address import named_ray

# Logs, metrics and the smallest of checkpoints need some of it.
MIN_FREE_BYTES = 16 << 20
_PACKAGES = ("torch", "ray")
# An evaluation alone reads no data to learn from.
_LEARNING = ("data", "algorithm")

Check = Callable[[RLinfConfig], Iterator[RLinfError]]


def check_ready(cfg: RLinfConfig) -> None:
    """Check that this machine has what a run of the recipe needs.

    Args:
        cfg: The validated recipe.

    Raises:
        CheckpointError: ``runner.ckpt_path`` does not exist, ``runner.resume_dir`` names no complete checkpoint or an
            evaluation has no weights, and nothing else is wrong.
        DatasetError: Files that the recipe names do not exist, and nothing else is wrong.
        MissingPackageError: Packages are not installed, and nothing else is wrong.
        ConfigError: Results cannot be written, the folder holds another run, a name is unknown, a metric service is not
            logged in to, the model is not there; or several kinds of errors, one line each.
    """
    errors = find_missing(cfg)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        kinds = {type(error) for error in errors}
        kind = kinds.pop() if len(kinds) == 1 else ConfigError
        raise kind("\n".join([f"{len(errors)} things that the recipe needs are missing:", *bullets(errors)]))


def find_missing(cfg: RLinfConfig, *, offline: bool = False) -> list[RLinfError]:
    """Return what this machine lacks for a run of the recipe.

    Packages and files are looked for where all components run on this machine, with this interpreter: on one node whose
    node groups set no process environment, without ``RAY_ADDRESS``.

    Args:
        cfg: The validated recipe.
        offline: Leave out what asks a service, or imports a package of simulators.

    Returns:
        One error for each, in the order of ``CHECKS``.
    """
    checks = [check for check in CHECKS if not (offline and check in _ONLINE)]
    errors = [error for check in checks for error in check(cfg)]
    return list({str(error): error for error in errors}.values())


def bullets(errors: list[RLinfError]) -> list[str]:
    """Return one indented line for each error."""
    return [f"  - {error}" for error in errors]


def check_base_packages(cfg: RLinfConfig) -> Iterator[RLinfError]:
    """What every run needs is installed."""
    target = "reason" if isinstance(cfg, LanguageConfig) else "embodied"
    remedy = f"bash requirements/install.sh {target}; or use the interpreter that has it: source .venv/bin/activate."
    for package in _PACKAGES:
        if not is_installed(package):
            yield missing_package(package, needed_by="Every run", install=remedy)


def check_disk(cfg: RLinfConfig) -> Iterator[RLinfError]:
    """Results can be written below the nearest folder that exists."""
    folder = Path(cfg.runner.logger.log_path).expanduser().absolute()
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    remedy = "Set runner.logger.log_path to a folder that you can write to."
    free = shutil.disk_usage(existing).free
    if not existing.is_dir():
        yield ConfigError(f"runner.logger.log_path: '{existing}' is a file, and results go below it. {remedy}")
    elif not os.access(existing, os.W_OK | os.X_OK):
        yield ConfigError(f"runner.logger.log_path: '{existing}' cannot be written to. {remedy}")
    elif free < MIN_FREE_BYTES:
        yield ConfigError(
            f"runner.logger.log_path: the disk of '{existing}' is full: {free / 2**20:.1f} MiB are free, and a run "
            f"needs {MIN_FREE_BYTES >> 20} MiB at the least. Free some space, or set runner.logger.log_path to a "
            "folder on a larger disk."
        )


def check_run_folder(cfg: RLinfConfig) -> Iterator[RLinfError]:
    """The experiment's folder is free; an evaluation gets one of its own."""
    runner = cfg.runner
    path, name, resumes = runner.logger.log_path, runner.logger.experiment_name, runner.resume_dir is not None
    if not runner.only_eval:
        yield from _raised(lambda: check_run_dir(path, name, resume=resumes, overwrite=runner.overwrite))


def check_metric_services(cfg: RLinfConfig) -> Iterator[RLinfError]:
    """Metric services are installed and logged in to."""
    yield from _raised(lambda: check_backends(cfg.runner.logger.logger_backends))


def check_weights(cfg: RLinfConfig) -> Iterator[RLinfError]:
    """Weights to begin with or to evaluate, and the language model, are there."""
    weights = cfg.runner.ckpt_path
    if weights is not None and not Path(weights).expanduser().exists():
        yield CheckpointError(
            f"runner.ckpt_path: '{weights}' does not exist. Give a checkpoint folder (global_step_N), a .pt or a "
            ".safetensors file, or remove the key to begin with new weights."
        )
    yield from _raised(lambda: find_checkpoint(cfg))
    model = cfg.actor.model
    if isinstance(model, CausalLMConfig | VLAConfig):
        model_path = model.model_path
        yield from _raised(lambda: require_model_path(model_path))


def check_packages(cfg: RLinfConfig) -> Iterator[RLinfError]:
    """Optional packages that the recipe's sections need are installed."""
    for path, section in _sections(cfg, ""):
        for package in section.required_packages():
            if _runs_here(cfg) and not is_installed(package):
                yield missing_package(package, needed_by=path)


def check_files(cfg: RLinfConfig) -> Iterator[RLinfError]:
    """Files and folders that the recipe's sections name exist."""
    for path, section in _sections(cfg, ""):
        if cfg.runner.only_eval and path.partition(".")[0] in _LEARNING:
            continue
        for key, file in section.required_files().items():
            if _runs_here(cfg) and not Path(file).expanduser().exists():
                yield DatasetError(
                    f"{join(path, key)}: '{file}' does not exist (looked in {Path.cwd()}). Correct the path; or make "
                    "it, where the comment at the top of the recipe says how."
                )


def check_rendering(cfg: RLinfConfig) -> Iterator[RLinfError]:
    """Environments show images that are rendered as those of the demonstrations, where these say how."""
    if isinstance(cfg, EmbodiedConfig):
        yield from rendering_differences(cfg)


def check_environments(cfg: RLinfConfig) -> Iterator[RLinfError]:
    """Tasks and registered environments have the names that the recipe gives; imports no simulator."""
    yield from _check_environments(cfg, with_simulators=False)


def check_registered_environments(cfg: RLinfConfig) -> Iterator[RLinfError]:
    """The same, for environments whose names only their package knows, or that need a GPU."""
    yield from _check_environments(cfg, with_simulators=True)


def _check_environments(cfg: RLinfConfig, *, with_simulators: bool) -> Iterator[RLinfError]:
    if not isinstance(cfg, EmbodiedConfig) or not _runs_here(cfg):
        return
    for path, env in (("env.train", cfg.env.train), ("env.eval", cfg.env.eval)):
        if env is None or imports_simulator(env) != with_simulators:
            continue
        if not all(is_installed(package) for package in env.required_packages()):
            continue  # has been reported
        for error in _raised(lambda env=env: check_env_config(env)):  # type: ignore[misc]
            yield type(error)(str(error).replace("env.*", path))


CHECKS: tuple[Check, ...] = (
    check_base_packages,
    check_disk,
    check_run_folder,
    check_metric_services,
    check_packages,
    check_weights,
    check_files,
    check_rendering,
    check_environments,
    check_registered_environments,
)
"""All checks, in the order of their errors."""

_ONLINE: tuple[Check, ...] = (check_metric_services, check_registered_environments)


def _raised(check: Callable[[], object]) -> Iterator[RLinfError]:
    """Yield what a check raises."""
    try:
        check()
    except (CheckpointError, ConfigError, MissingPackageError) as error:
        yield error


def _runs_here(cfg: RLinfConfig) -> bool:
    """Return whether all components run on this machine, with this interpreter and its environment variables."""
    is_alone = (cfg.cluster.num_nodes or 1) == 1 and not named_ray()
    return is_alone and not any(group.env_configs for group in cfg.cluster.node_groups)


def _sections(value: Any, path: str) -> Iterator[tuple[str, ConfigSection]]:
    """Yield every section of a tree with its dotted path."""
    if isinstance(value, ConfigSection):
        yield path, value
        for field in fields_of(value):
            is_part = isinstance(value, AlgorithmConfig) and field.name in ALGORITHM_PARTS
            yield from _sections(getattr(value, field.name), path if is_part else join(path, field.name))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _sections(item, join(path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _sections(item, f"{path}[{index}]")
