"""Sweeps (``rlinf train -m``): the runs that Hydra's sweepers choose, one after the other, and a table of them."""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlinf.cli.arguments import find_config_dir
from rlinf.cli.command_recipe import read_recipe
from rlinf.cli.sweep_results import SweepPoint, final_metrics, pick_metric, point_name, sweep_table, write_sweep
from rlinf.config.overrides import as_overrides
from rlinf.config.recipes import parse_override
from rlinf.errors import ConfigError
from rlinf.utils.optional import missing_package
from rlinf.utils.signals import hear_interrupts

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

_SUFFIX = "_sweep"
_OWN = ("runner.logger.log_path=", "runner.logger.experiment_name=")
"""What a sweep sets for each of its runs."""
_SECONDS_TO_END = 60.0
"""For which an interrupted sweep waits for its run to save a checkpoint."""


def run_sweep(args: argparse.Namespace) -> int:
    """Run every point of a sweep as a process of its own, and print a table.

    Points are the combinations of the values that commas separate; ``hydra/sweeper=optuna`` lets Optuna choose them.
    Each run has a folder ``<log_path>/<experiment_name>_sweep/<point>``. A failed run does not end the others.

    Args:
        args: Of ``rlinf train`` and its like.

    Returns:
        0, or 1 where a run failed.

    Raises:
        ConfigError: An override cannot be read, no key has several values, or the first point's recipe is wrong.
        MissingPackageError: The sweeper is not installed.
    """
    settings = [text for text in args.overrides if _is_of_hydra(text)]
    overrides = [parse_override(text) for text in args.overrides if not _is_of_hydra(text)]
    if not any(override.is_sweep_override() for override in overrides):
        raise ConfigError("-m: no override has several values. Separate them by commas, for example actor.seed=1,2,3.")
    fixed = [override.input_line or "" for override in overrides if not override.is_sweep_override()]
    cfg = read_recipe("train", args.recipe, fixed, args.config_dir)
    logger = cfg.runner.logger
    folder = Path(logger.log_path).expanduser().absolute() / f"{logger.experiment_name}{_SUFFIX}"
    sweep = _Sweep(args, [text for text in fixed if not text.lstrip("+").startswith(_OWN)], folder=folder)
    try:
        with hear_interrupts():
            _choose_points(settings, overrides, sweep)
    finally:
        sweep.report()
    return 1 if any(point.failed for point in sweep.points) else 0


class _Sweep:
    """Runs points in the order in which a sweeper gives them.

    Args:
        args: Of the command.
        fixed: Overrides that all points share.
        folder: Holds the runs' folders.
    """

    def __init__(self, args: argparse.Namespace, fixed: Sequence[str], *, folder: Path) -> None:
        self.args, self.fixed, self.folder = args, list(fixed), folder
        self.points: list[SweepPoint] = []

    def run(self, choice: Sequence[str]) -> SweepPoint:
        """Run one point.

        Args:
            choice: Its overrides besides the fixed ones.
        """
        name = point_name(choice)
        place = as_overrides({"runner.logger.log_path": self.folder, "runner.logger.experiment_name": name})
        overrides = [*self.fixed, *choice, *place]
        # A mistake in one point is known before its processes are started.
        read_recipe(self.args.command, self.args.recipe, overrides, self.args.config_dir)
        options = ["--quiet"] if self.args.quiet else []
        config_dir = find_config_dir(self.args.config_dir)
        options += [] if config_dir is None else ["--config-dir", config_dir]
        command = [sys.executable, "-m", "rlinf", self.args.command, self.args.recipe, *options, *overrides]
        print(f"Run {len(self.points) + 1} of the sweep: {' '.join(choice)}", flush=True)
        with _child(command) as process:
            code = process.wait()
        run_folder = self.folder / name
        point = SweepPoint(list(choice), str(run_folder), code, final_metrics(run_folder))
        self.points.append(point)
        write_sweep(self.folder, self.points)
        return point

    def objective(self, point: SweepPoint) -> float:
        """Return what a sweeper maximises; NaN for a failed run."""
        name = pick_metric(self.points, self.args.metric)
        return float("nan") if name is None or point.failed else point.metrics.get(name, float("nan"))

    def report(self) -> None:
        """Print the table of the points that have run."""
        if self.points:
            print("\n".join(sweep_table(self.points, self.args.metric)))
            print(f"Compare the curves with: rlinf report {self.folder}")


@contextlib.contextmanager
def _child(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a run; an interrupt ends it, too, and waits until it has saved a checkpoint."""
    process = subprocess.Popen(command)
    try:
        yield process
    except KeyboardInterrupt:
        # Ctrl-C has reached it already, as every process of the terminal; SIGTERM only this one.
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_SECONDS_TO_END)
        raise
    finally:
        if process.poll() is None:
            process.kill()


def _is_of_hydra(text: str) -> bool:
    return text.lstrip("+~").startswith(("hydra/", "hydra."))


def _choose_points(settings: list[str], overrides: Sequence[Override], sweep: _Sweep) -> None:
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper

    swept = [override for override in overrides if override.is_sweep_override()]
    if not settings:
        if not all(override.is_discrete_sweep() for override in swept):
            raise ConfigError("-m: interval(...) needs a sweeper that samples: hydra/sweeper=optuna.")
        for choice in BasicSweeper.split_arguments(swept, None)[0]:
            sweep.run(choice)
        return
    sweeper = _make_sweeper([*settings, *as_overrides({"hydra.sweep.dir": sweep.folder})])
    # Hydra's launchers compose recipes by Hydra alone, and run them in this process.
    inner = getattr(sweeper, "sweeper", sweeper)
    inner.launcher = _Launcher(sweep)
    sweep.folder.mkdir(parents=True, exist_ok=True)
    sweeper.sweep([override.input_line for override in swept])


def _make_sweeper(settings: list[str]) -> Any:
    """Return the sweeper that Hydra's own settings choose."""
    from hydra import compose, initialize
    from hydra._internal.callbacks import Callbacks
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.plugins import Plugins
    from hydra.errors import HydraException
    from hydra.types import HydraContext

    keys = list(settings)
    if not any("hydra.sweeper.direction" in text for text in settings):
        keys.append("hydra.sweeper.direction=maximize")
    if not any("hydra.sweeper.n_jobs" in text for text in settings):
        keys.append("hydra.sweeper.n_jobs=1")
    try:
        with initialize(config_path=None, version_base="1.3"):
            cfg = compose(overrides=keys, return_hydra_config=True)
            context = HydraContext(config_loader=GlobalHydra.instance().config_loader(), callbacks=Callbacks())
            return Plugins.instance().instantiate_sweeper(
                hydra_context=context, task_function=lambda _: None, config=cfg
            )
    except HydraException as error:
        if "hydra/sweeper=optuna" in settings and "Could not find 'hydra/sweeper/optuna'" in str(error):
            raise missing_package(
                "hydra_plugins.hydra_optuna_sweeper",
                needed_by="hydra/sweeper=optuna",
                install="pip install 'rlinf[optuna]'",
            ) from error
        raise ConfigError(f"The settings of Hydra cannot be composed: {error}") from error


class _Launcher:
    """What a sweeper of Hydra launches its choices with.

    Args:
        sweep: Runs them.
    """

    def __init__(self, sweep: _Sweep) -> None:
        self._sweep = sweep

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> list[Any]:
        """Run choices; returns their objectives, as Hydra's ``JobReturn``."""
        from hydra.core.utils import JobReturn, JobStatus

        del initial_job_idx
        points = [self._sweep.run([text for text in choice if "=" in text]) for choice in job_overrides]
        returns = []
        for point in points:
            value = self._sweep.objective(point)
            failed = value != value
            returned = JobReturn(status=JobStatus.FAILED if failed else JobStatus.COMPLETED)
            returned.return_value = ValueError(f"{point.folder}: the run has no such metric") if failed else value
            returns.append(returned)
        return returns
