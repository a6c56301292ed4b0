"""Training and evaluating a recipe from Python."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rlinf.config import load_recipe, validate_cfg
from rlinf.config.overrides import Overrides, as_overrides
from rlinf.runners.callbacks import Callback, StepFunction
from rlinf.runners.launch import launch
from rlinf.runners.output_paths import reserve_run, run_folder, with_newest_weights
from rlinf.runners.readiness import check_ready
from rlinf.telemetry.logger import METRICS_FILE

if TYPE_CHECKING:
    from rlinf.api.policy import TrainedPolicy


__all__ = ["Callback", "RunResult", "evaluate", "train"]


@dataclass(frozen=True, slots=True)
class RunResult:
    """A finished run.

    Attributes:
        folder: The run's folder, ``<log_path>/<experiment_name>``; an evaluation has one of its own in it.
        metrics: Metrics of the last step, by name.
    """

    folder: Path
    metrics: dict[str, float]

    @property
    def history(self) -> list[dict[str, float]]:
        """The metrics of each step, with ``step`` and ``time_seconds``; what was not finite is None."""
        return [json.loads(line) for line in (self.folder / METRICS_FILE).read_text(encoding="utf-8").splitlines()]

    def load_policy(self) -> TrainedPolicy:
        """Load the policy of the newest checkpoint; see ``rlinf.load_policy``."""
        from rlinf.api.policy import load_policy

        return load_policy(self.folder)


def train(
    recipe: str | Path,
    overrides: Overrides = (),
    *,
    config_dir: str | Path | None = None,
    callbacks: Sequence[Callback | StepFunction] = (),
) -> RunResult:
    """Train a recipe in this process until its end, as ``rlinf train`` does.

    Works in a notebook, and in a thread (``await asyncio.to_thread(rlinf.train, ...)``): signals are left as they are
    outside of the main thread. The workers end with the run.

    Args:
        recipe: Name of a recipe, or the path of its file.
        overrides: Changes to it: strings in Hydra's grammar, or values by their keys.
        config_dir: Folder with recipes that is searched before the others.
        callbacks: Called after each step; one that returns False ends the run.

    Returns:
        The run's folder and last metrics.

    Raises:
        RLinfError: The recipe cannot run, or failed; the class says how.
    """
    cfg = validate_cfg(load_recipe(str(recipe), as_overrides(overrides), config_dir))
    check_ready(cfg)
    with ExitStack() as stack:
        cfg = reserve_run(cfg, stack)
        metrics = launch(cfg, callbacks=callbacks)
        return RunResult(run_folder(cfg), metrics)


def evaluate(recipe: str | Path, overrides: Overrides = (), *, config_dir: str | Path | None = None) -> RunResult:
    """Evaluate the newest checkpoint of a recipe's experiment, as ``rlinf eval`` does.

    Args:
        recipe: See ``train``.
        overrides: See ``train``; ``runner.resume_dir`` or ``runner.ckpt_path`` names other weights.
        config_dir: See ``train``.

    Returns:
        The evaluation's folder and metrics.

    Raises:
        CheckpointError: There are no such weights.
        RLinfError: See ``train``.
    """
    changes = [*as_overrides(overrides), "runner.only_eval=true"]
    cfg = with_newest_weights(validate_cfg(load_recipe(str(recipe), changes, config_dir)))
    check_ready(cfg)
    with ExitStack() as stack:
        cfg = reserve_run(cfg, stack)
        return RunResult(run_folder(cfg), launch(cfg))
