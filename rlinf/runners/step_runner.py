"""The loop that all runners share: make steps, evaluate, log and save, and go on after a worker has died."""

from __future__ import annotations

import abc
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from rlinf.config.schema.root import RLinfConfig
from rlinf.errors import RLinfError, WorkerDiedError, WorkerError
from rlinf.runners.callbacks import Callback, CallbackList, StepFunction
from rlinf.runners.checkpoint_writer import CheckpointWriter
from rlinf.runners.profiling import StepProfiler
from rlinf.runners.run_logger import RunLogger
from rlinf.scheduler import WorkerGroup, wait_all
from rlinf.telemetry.rundir import PROFILE_FOLDER, dump_folder
from rlinf.utils.signals import hold_interrupts

if TYPE_CHECKING:
    from rlinf.scheduler import WorkerGroupFuncResult

Metrics = dict[str, float]
# Published and former names of methods: what overrides or calls them goes on working.
_ALIASES = {
    "update_rollout_weights": "sync_weights",
    "run_training": "train",
    "compute_advantages_and_returns": "compute_advantages",
    "collect_answers": "generate_rollouts",
}


class StepRunner(abc.ABC):
    """Drives worker groups, mostly an actor and perhaps a rollout among them, through the train steps of a recipe.

    A subclass implements the phases of a step: ``generate_rollouts``, ``compute_advantages``, ``evaluate``.

    Args:
        cfg: The recipe.
        groups: The worker groups by component: ``actor``, and others.

    Attributes:
        step: Train steps that have been made.
        metrics: The metrics of the last of them, with its evaluation.
        is_logged: Whether these metrics have been logged.
        evaluated_step: The step after which the policy was evaluated last.
        checkpoints: Writes the checkpoints.
        training: The training call in progress, and the metrics of its step so far; None while there is none.
        callbacks: Code of the user that is called after steps and checkpoints.
        receivers_synced: Whether all that take the actor's weights have the whole model, and need only what is trained.
    """

    survivors: ClassVar[frozenset[str]] = frozenset({"actor"})
    """Components whose group stays as it is when a worker of another one dies."""

    def __init__(self, cfg: RLinfConfig, groups: Mapping[str, WorkerGroup[Any]]) -> None:
        self.logger = RunLogger(cfg)
        self.callbacks = CallbackList()
        self.groups = dict(groups)
        self.profiler = StepProfiler(cfg.cluster.profiling, self.groups, self.logger.folder / PROFILE_FOLDER)
        self.limits = cfg.runner
        self.checkpoints = CheckpointWriter(self.logger, self.groups.get("actor"), in_background=self.limits.async_save)
        self.step = 0
        self.metrics: Metrics = {}
        self.is_logged = False
        self.evaluated_step = -1
        self.training: tuple[WorkerGroupFuncResult, Metrics] | None = None
        self.started = time.monotonic()
        self.restarts = 0
        # Components of which a worker has died, until all is restored: another worker may die before that.
        self.lost: set[str] = set()
        self.receivers_synced = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Let a method be overridden, and called by ``super()``, by its former name too."""
        super().__init_subclass__(**kwargs)
        _add_aliases(cls)

    def run(self) -> Metrics:
        """Run the recipe to its end.

        A pass of the loop completes the last step (step 0 is the evaluation before training) and makes the next one.
        After a death the pass begins again: workers get their weights, and nothing is evaluated, logged or saved twice.

        Returns:
            The last step's metrics.
        """
        with self.logger, self.save_on_interrupt():
            while True:
                with self.recover_from_deaths():
                    self.sync_weights()
                    self.collect_times()
                    self.evaluate_if_due()
                    self.log_and_save()
                    if self.is_done():
                        if self.checkpoints.pending is not None:
                            self.logger.phase("checkpoint")
                            self.checkpoints.publish(wait=True)
                        self.finish()
                        return self.metrics
                    self.metrics = self.make_step()

    def add_callbacks(self, callbacks: Iterable[Callback | StepFunction]) -> None:
        """Have code of the user called after each step and each checkpoint."""
        self.callbacks = self.checkpoints.callbacks = CallbackList(callbacks)

    def make_step(self) -> Metrics:
        """Make one train step; returns its metrics."""
        self.started = time.monotonic()
        with self.profiler.step(self.step + 1):
            metrics = self.generate_rollouts()
            metrics |= self.compute_advantages()
            return self.train(metrics)

    def generate_rollouts(self) -> Metrics:
        """Collect what the step trains on; returns its metrics."""
        return {}

    def compute_advantages(self) -> Metrics:
        """Have the actor turn what was collected into what it trains on; returns the metrics of that."""
        return {}

    def dump_folder(self) -> str | None:
        """Return where the actor writes what the step starts from; None if ``runner.dump_steps`` does not name it."""
        step = self.step + 1
        return str(dump_folder(self.logger.folder, step)) if step in self.limits.dump_steps else None

    def train(self, metrics: Metrics) -> Metrics:
        """Update the policy; from here on the step counts as made.

        Args:
            metrics: Those of the step so far.

        Returns:
            These and those of the training.
        """
        self.logger.phase("training")
        with hold_interrupts():
            training = self.groups["actor"].run_training(step=self.step + 1)
            self.training = (training, metrics)
        self.wait_for_training(training)
        return self._finish_training(training, metrics)

    def wait_for_training(self, training: WorkerGroupFuncResult) -> None:
        """Wait until the actor has trained, or do something useful meanwhile."""
        training.wait()

    def _finish_training(self, training: WorkerGroupFuncResult, metrics: Metrics) -> Metrics:
        """Wait for the training and count its step, together with its metrics."""
        metrics = metrics | training.wait()[0]
        with hold_interrupts():
            self.training = None
            self.step += 1
            self.metrics, self.is_logged = metrics, False
        return metrics

    def sync_weights(self) -> None:
        """Bring the rollout to the actor's current weights."""
        self.logger.phase("sync weights")
        rollout = self.groups["rollout"].sync_model_from_actor(version=self.step)
        wait_all(self.publish_weights(), rollout)
        self.receivers_synced = True

    def publish_weights(self) -> WorkerGroupFuncResult:
        """Have the actor send its weights: what is trained, or all to receivers that may have none."""
        return self.groups["actor"].sync_model_to_rollout(version=self.step, is_partial=self.receivers_synced)

    def collect_times(self) -> None:
        """Add the duration of the step and of its parts to its metrics, unless they are logged."""
        if self.metrics and not self.is_logged:
            self.metrics |= self.measure_times()

    def measure_times(self) -> Metrics:
        """Return how long the step and its parts took: the slowest rank of each group."""
        ranks = wait_all(*(group.pop_execution_times() for group in self.groups.values()))
        return self.time_metrics(dict(zip(self.groups, ranks, strict=True)))

    def time_metrics(self, groups: Mapping[str, list[dict[str, float]]]) -> Metrics:
        """Lay out the seconds of the step that ends now.

        Args:
            groups: For each group what ``pop_execution_times`` of each rank returned.
        """
        step_seconds = time.monotonic() - self.started
        metrics = {"time/step": step_seconds, "time/restarts": float(self.restarts)}
        for name, times in groups.items():
            for tag in {tag for rank in times for tag in rank}:
                metrics[f"time/{name}/{tag}"] = max(rank.get(tag, 0.0) for rank in times)
        return metrics | self.throughput(step_seconds)

    @abc.abstractmethod
    def throughput(self, step_seconds: float) -> Metrics:
        """Return how much a step of such a length has processed per second."""

    def evaluate_if_due(self) -> None:
        """Evaluate the policy after this step, if the recipe wants it and it has not been done."""
        if self.logger.is_evaluation_due(self.step) and self.evaluated_step != self.step:
            self.metrics |= self.evaluate()
            self.evaluated_step, self.is_logged = self.step, False

    @abc.abstractmethod
    def evaluate(self) -> Metrics:
        """Evaluate the policy; returns metrics under ``eval/``."""

    def log_and_save(self) -> None:
        """Log the step's metrics and write a due checkpoint, unless that has been done."""
        if not self.is_logged:
            self._log(self.metrics)
            if self.metrics and not self.callbacks.on_step(self.step, self.metrics):
                self.logger.stop_requested = True
        self.checkpoints.publish(wait=False)
        if self.logger.is_checkpoint_due(self.step, self.metrics, is_last=self.is_stopping()):
            self.save_checkpoint(self.metrics)

    def _log(self, metrics: Metrics) -> None:
        with hold_interrupts():
            self.logger.log(self.step, metrics)
            self.is_logged = True

    def is_done(self) -> bool:
        """Return whether the last step was the last of the recipe, has reached ``runner.stop_at`` or is to be it."""
        is_last = self.limits.only_eval or self.step >= self.limits.total_steps
        return is_last or self.logger.goal_reached(self.metrics) or self.is_stopping()

    def finish(self) -> None:  # noqa: B027 - optional
        """Do what is left once the last step is saved, and before the groups end."""

    def is_stopping(self) -> bool:
        """Return whether a callback has requested the end of the run, and it can end at this step."""
        return self.logger.stop_requested

    def save_checkpoint(self, metrics: Metrics) -> None:
        """Write a checkpoint of the current step; with ``runner.async_save`` the actor goes on writing afterwards."""
        self.checkpoints.save(self.step, metrics, self.write_checkpoint)

    def write_checkpoint(self, folder: str) -> None:
        """Write the state of the run under ``folder``."""
        self.groups["actor"].save_checkpoint(f"{folder}/actor").wait()

    def load_checkpoint(self, folder: str) -> None:
        """Continue from what ``write_checkpoint`` wrote."""
        self.groups["actor"].load_checkpoint(f"{folder}/actor").wait()

    def start_over(self) -> None:  # noqa: B027 - optional
        """Undo what ``load_checkpoint`` would have replaced: there is no checkpoint yet."""

    def init_workers(self) -> None:
        """Build what the groups hold, and load the checkpoint to continue from, if any."""
        wait_all(*self.init_calls(self.groups.values()))
        if self.logger.resume_from is not None:
            self.load_checkpoint(str(self.logger.resume_from))
            self._begin_at(self.logger.resume_step)
            self.logger.confirm_resumed()

    def init_calls(self, groups: Iterable[WorkerGroup[Any]]) -> list[WorkerGroupFuncResult]:
        """Let groups build what they hold, when they have been launched or launched again."""
        return [group.init_worker() for group in groups]

    @contextmanager
    def recover_from_deaths(self) -> Iterator[None]:
        """End the block at the death of a worker, launched again; ``runner.max_restarts`` times in a run.

        Raises:
            WorkerError: Something else failed, or the restarts are used up.
        """
        try:
            yield
        except WorkerError as error:
            death = find_death(error)
            if death is None or self.restarts >= self.limits.max_restarts:
                raise
            with self.recover_from_deaths():
                self.recover(death)

    def recover(self, death: WorkerDiedError) -> bool:
        """Launch the dead worker's group again, and every group that may have been in the middle of talking to it.

        Groups other than the actor come back at the actor's present weights. An actor comes back at the newest
        checkpoint, from which the run goes on.

        Args:
            death: What ended the step.

        Returns:
            Whether the run has gone back to a checkpoint (or to its start).

        Raises:
            WorkerError: A worker died meanwhile, or could not start.
        """
        self.restarts += 1
        self.training, self.receivers_synced = None, False
        self.logger.restarted(death, self.restarts)
        self.lost |= {name for name, group in self.groups.items() if group.name == death.group}
        kept = self.survivors - self.lost
        groups = [group for name, group in self.groups.items() if name not in kept]
        for group in groups:
            group.relaunch(wait=False)
        wait_all(*self.init_calls([group.wait_ready() for group in groups]))
        goes_back = "actor" in self.lost
        if goes_back:
            self.checkpoints.forget()
            self._restore_actor()
        self.lost.clear()
        return goes_back

    def _restore_actor(self) -> None:
        checkpoint = self.logger.rewind()
        self._begin_at(self.logger.resume_step)
        if checkpoint is not None:
            self.load_checkpoint(str(checkpoint))
        else:
            self.start_over()

    def _begin_at(self, step: int) -> None:
        """Count from ``step`` on; nothing has been evaluated or logged since."""
        self.step, self.metrics, self.is_logged, self.evaluated_step = step, {}, False, -1

    @contextmanager
    def save_on_interrupt(self) -> Iterator[None]:
        """At an interrupt within the block, log and save the last whole step.

        A training phase in progress is finished; anything else is abandoned. At an error, a checkpoint that is being
        written in the background is published.
        """
        try:
            yield
        except KeyboardInterrupt:
            self._save_last_step()
            raise
        except RLinfError:
            self.checkpoints.publish_last()
            raise

    def _save_last_step(self) -> None:
        if "actor" in self.lost:
            self.logger.message("Interrupted: the actor was being restored; its last checkpoint is the newest.")
            return
        self.logger.message("Interrupted: saving a checkpoint ...")
        if self.training is not None:
            self._finish_training(*self.training)
        self.abandon_step()
        # The actor runs one method at a time: this returns when it has given up what it was doing.
        times = self.groups["actor"].pop_execution_times().wait()
        if self.metrics and not self.is_logged:
            self._log(self.time_metrics({"actor": times}) | self.metrics)
        if not self.logger.is_saved(self.step) and self.step > 0:
            self.save_checkpoint({})
        self.checkpoints.publish_last()

    def abandon_step(self) -> None:
        """End the groups that take no part in a checkpoint; the others then give up what they were doing."""
        for group in self.groups.values():
            if group is not self.groups["actor"]:
                group.close()


def find_death(error: BaseException | None) -> WorkerDiedError | None:
    """Return the death of a worker that an error was caused by, if one was."""
    while error is not None and not isinstance(error, WorkerDiedError):
        error = error.__cause__
    return error


def _add_aliases(runner: type) -> None:
    for alias, name in _ALIASES.items():
        own = vars(runner)
        if alias in own and name not in own:
            setattr(runner, name, own[alias])
        elif name in own:
            setattr(runner, alias, own[name])


_add_aliases(StepRunner)
