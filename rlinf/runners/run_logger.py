"""The record of a run: metrics, events, progress display, checkpoints and evaluations, and when each is due."""

from __future__ import annotations

import json
import math
import weakref
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from rlinf.checkpoint import CheckpointManager, checkpoint_step
from rlinf.config import to_dict
from rlinf.config.schema.root import RLinfConfig
from rlinf.errors import ConfigError, WorkerDiedError
from rlinf.registry import did_you_mean
from rlinf.runners.output_paths import reserve_run, run_folder
from rlinf.telemetry.console import Console
from rlinf.telemetry.evaluation import EvalEpisode, evaluation_table, mean_metrics, write_episodes
from rlinf.telemetry.events import EventKind, EventLog
from rlinf.telemetry.logger import MetricLogger
from rlinf.telemetry.report import RunReport
from rlinf.telemetry.rundir import (
    CHECKPOINTS_FOLDER,
    EVALUATIONS_FOLDER,
    PROFILE_FOLDER,
    record_launch,
)
from rlinf.telemetry.trace import PHASE_PREFIX, STEP_MARK, Phases, instant
from rlinf.telemetry.trace_export import trace_path
from rlinf.utils.files import write_atomic
from rlinf.utils.secrets import hide_for_record
from rlinf.utils.signals import hear_interrupts


class RunLogger:
    """Logs one run; a context manager around its loop.

    Attributes:
        notes: Lines that the run begins with.
        output_paths: Further paths that the end of the run shows, by name; None is not shown.
        run_id: Name of the run among those alive, as ``rlinf status`` takes it; recorded when the loop begins.
        placement: Where everything runs, as ``rlinf.placement.draw_plan`` draws it; recorded when the loop begins.
        report: The run's page; see ``write_report``.
        begins_at: The checkpoint that the run continues from, or that it evaluates; None begins anew.
        newest: The newest checkpoint: ``begins_at``, until the run saves one.
        stop_requested: Whether a callback has requested the end of the run.

    Args:
        cfg: The recipe.

    Raises:
        ConfigError: The experiment's folder holds another run.
        RunLockedError: Another process works in the folder.
        CheckpointError: ``runner.resume_dir`` names no complete checkpoint, or an evaluation has no weights.
    """

    def __init__(self, cfg: RLinfConfig) -> None:
        self._exit = ExitStack()
        # A launch has claimed the folder already; a runner that is used without one claims it here.
        self.cfg = cfg = reserve_run(cfg, self._exit)
        weakref.finalize(self, self._exit.close)
        runner = cfg.runner
        self.folder = run_folder(cfg)
        self.checkpoints = CheckpointManager(
            self.folder / CHECKPOINTS_FOLDER, runner.keep_checkpoints, runner.keep_best
        )
        self.begins_at = self.checkpoints.resolve(runner.resume_dir)
        self._go_back_to(self.begins_at)
        self.saved_step = None if self.begins_at is None else self.resume_step
        self.newest = self.begins_at
        self.metrics: dict[str, float] = {}
        self.restarts = 0
        self.phases = Phases()
        self.events = EventLog(self.folder)
        self.report = RunReport(self.folder, is_wanted=runner.logger.report)
        self.output_paths: dict[str, str | Path | None] = {}
        self.notes: list[str] = []
        self.run_id: str | None = None
        self.placement: str | None = None
        self.num_evaluations = 0
        self.has_begun = False
        self.goals_checked = False
        self.stop_requested = False

    def __enter__(self) -> RunLogger:
        """Record the launch, open the metric log and start showing progress."""
        cfg = self.cfg.runner
        record_launch(
            self.folder,
            cfg.logger.experiment_name,
            config=to_dict(self.cfg),
            seed=self.cfg.actor.seed,
            placement=self.placement,
            run_id=self.run_id,
        )
        self.has_begun = True
        self.metric_logger = self._open_logger()
        self.console = Console(cfg.total_steps, cfg.logger.experiment_name, start_step=self.resume_step)
        self._exit.enter_context(self.console)
        self._exit.enter_context(hear_interrupts())
        self._exit.enter_context(self.events)
        self.events.step = self.resume_step
        self.events.add("start", f"Started at step {self.resume_step} of {cfg.total_steps}.")
        for note in self.notes:
            self.message(note)
        if self.resume_from is not None:
            self.message(f"Continuing from {self.resume_from} (step {self.resume_step}).")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the log, and say where everything is."""
        with self._exit:
            self.phases.end()
            self.metric_logger.finish(failed=error is not None and not isinstance(error, KeyboardInterrupt))
            self.events.add("end", self._describe_end(error))
        shown = {name: value for name, value in self.metrics.items() if name.startswith(("eval/", "env/"))}
        self.console.summary(self._shown_paths(), shown)

    def confirm_resumed(self) -> None:
        """Say that the state of ``resume_from`` has been loaded: from now on it is this run's newest checkpoint."""
        if self.resume_from is not None:
            self.checkpoints.mark_resumed(self.resume_from)

    def phase(self, name: str) -> None:
        """Show what the run is doing."""
        self.phases.begin(name)
        self.console.phase(name)

    def message(self, text: str, kind: EventKind = "note") -> None:
        """Show and record a line of text, once the run has begun."""
        if not self.has_begun:
            self.notes.append(text)
            return
        self.console.message(text)
        self.events.add(kind, text)

    def write_report(self) -> None:
        """Write the page about the run; one that never began has none."""
        if self.has_begun:
            self.report.write()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record and show a finished step; nothing of it is lost if the run is killed from here on.

        Args:
            step: Its number; 0 is the evaluation before the first.
            metrics: By name.

        Raises:
            ConfigError: ``runner.stop_at`` or ``runner.keep_best`` names a metric that the first evaluation lacks.
        """
        if not metrics:
            return
        self.metrics |= metrics
        self.metric_logger.log(metrics, step)
        self.metric_logger.log(
            {f"{PHASE_PREFIX}{name}": seconds for name, seconds in self.phases.pop_seconds().items()}, step
        )
        self.metric_logger.commit(step)
        self.events.step = step
        instant(STEP_MARK, "run", step=step)
        self.console.update(step, metrics)
        if any(name.startswith("eval/") for name in metrics) or step in {1, self.cfg.runner.total_steps}:
            self.console.table(metrics, step)
        self.report.refresh()
        self._check_goals(metrics)

    def _check_goals(self, metrics: Mapping[str, float]) -> None:
        """Look, at the first evaluation, whether the metrics that the recipe names are among those that it produced."""
        produced = [name for name in metrics if name.startswith("eval/")]
        if not produced or self.goals_checked or self.cfg.runner.only_eval:
            return
        self.goals_checked = True
        wanted = {f"runner.stop_at.{name}": name for name in self.cfg.runner.stop_at}
        best = self.cfg.runner.keep_best
        if best is not None and best.startswith("eval/"):
            wanted["runner.keep_best"] = best
        missing = [
            f"{path}: no evaluation produces '{name}'.{did_you_mean(name, produced)}"
            for path, name in wanted.items()
            if name not in produced
        ]
        if missing:
            raise ConfigError("\n".join([*missing, f"Produced were: {', '.join(sorted(produced))}."]))

    def is_evaluation_due(self, step: int) -> bool:
        """Return whether an evaluation is due after ``step`` (0 is the start); not again for the step resumed from."""
        if self.cfg.runner.only_eval or step == self.resume_step != 0:
            return self.cfg.runner.only_eval
        interval = self.cfg.runner.val_check_interval
        return interval > 0 and (step % interval == 0 or step == self.cfg.runner.total_steps)

    def log_evaluation(
        self, step: int, episodes: list[EvalEpisode], record: Mapping[str, Any] | None = None
    ) -> dict[str, float]:
        """Record the episodes of an evaluation, and show them where a run does nothing else.

        Args:
            step: Steps made before.
            episodes: Of all ranks, in any order.
            record: What they depend on (``evaluation_record``), for a file of its own next to theirs.

        Returns:
            Their means, under ``eval/``.
        """
        self.num_evaluations += 1
        episodes = sorted(episodes)
        file = self.folder / EVALUATIONS_FOLDER / f"step_{step:08d}.jsonl"
        write_episodes(file, episodes)
        if record is not None:
            write_atomic(file.with_suffix(".json"), json.dumps(record, indent=1) + "\n")
        if self.cfg.runner.only_eval and episodes:
            self.console.show(evaluation_table(episodes))
        return mean_metrics(episodes)

    def is_checkpoint_due(self, step: int, metrics: Mapping[str, float], *, is_last: bool = False) -> bool:
        """Return whether a checkpoint is due after ``step``; ``is_last``: the run ends there."""
        interval = self.cfg.runner.save_interval
        if step == 0 or self.is_saved(step) or self.cfg.runner.only_eval:
            return False
        if is_last or step == self.cfg.runner.total_steps or self.goal_reached(metrics):
            return True
        return interval > 0 and step % interval == 0

    def is_anything_due(self, step: int) -> bool:
        """Return whether something is due after ``step`` that all workers take part in, or the run ends."""
        ends = step == self.cfg.runner.total_steps or self.stop_requested
        return ends or self.is_evaluation_due(step) or self.is_checkpoint_due(step, {})

    def goal_reached(self, metrics: Mapping[str, float]) -> bool:
        """Return whether the metrics fulfil ``runner.stop_at``."""
        goals = self.cfg.runner.stop_at
        return bool(goals) and all(metrics.get(name, -math.inf) >= value for name, value in goals.items())

    def restarted(self, death: WorkerDiedError, count: int) -> None:
        """Say that a worker died and is launched again."""
        self.restarts = count
        self.message(
            f"{death} Launching it again: restart {count} of at most {self.cfg.runner.max_restarts}.", "restart"
        )

    def rewind(self) -> Path | None:
        """Go back to the newest checkpoint, or to what the run began from: later records are cut off.

        Returns:
            The checkpoint's folder; None if there is none.
        """
        self._go_back_to(self.checkpoints.resolve("auto") or self.begins_at)
        self.saved_step = None if self.resume_from is None else self.resume_step
        self.metric_logger.finish()
        self.metric_logger = self._open_logger()
        return self.resume_from

    def is_saved(self, step: int) -> bool:
        """Return whether the newest checkpoint, written or being written, is that of ``step``."""
        return self.saved_step == step

    def commit_checkpoint(self, step: int, metrics: Mapping[str, float]) -> None:
        """Publish the checkpoint that has been written."""
        self.newest = self.checkpoints.commit(step, {"seed": self.cfg.actor.seed}, metrics, required=["actor"])
        self.saved_step = step

    def _go_back_to(self, checkpoint: Path | None) -> None:
        self.resume_from = checkpoint
        self.resume_step = 0 if checkpoint is None else checkpoint_step(checkpoint)

    def _open_logger(self) -> MetricLogger:
        resume_step = self.resume_step if self.resume_from is not None else None
        return MetricLogger(self.folder, self.cfg.runner.logger, hide_for_record(to_dict(self.cfg)), resume_step)

    def _describe_end(self, error: BaseException | None) -> str:
        where = f"at step {self.events.step} of {self.cfg.runner.total_steps}"
        if error is None:
            return f"Finished {where}."
        if isinstance(error, KeyboardInterrupt):
            return f"Interrupted {where}."
        return f"Failed {where}: {type(error).__name__}: {error}"

    def _shown_paths(self) -> dict[str, str | Path | None]:
        tracer = self.cfg.cluster.tracer
        tensorboard = "tensorboard" in self.cfg.runner.logger.logger_backends
        return {
            "restarts": str(self.restarts) if self.restarts else None,
            "checkpoint": self.newest,
            "evaluations": self.folder / EVALUATIONS_FOLDER if self.num_evaluations else None,
            **self.output_paths,
            "TensorBoard": self.folder / "tensorboard" if tensorboard else None,
            "metrics": self.folder / "metrics.jsonl",
            "report": self.report.path,
            "trace": trace_path(tracer, str(self.folder)) if tracer.enable else None,
            "profiles": self.folder / PROFILE_FOLDER if self.cfg.cluster.profiling.enable else None,
        }
