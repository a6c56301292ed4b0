"""What all loops have in common: steps are counted, evaluated, logged and saved, and made again after a death."""

from __future__ import annotations

import abc
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rlinf.config.schema.root import RLinfConfig
from rlinf.errors import WorkerDiedError, WorkerError
from rlinf.runners.profiling import StepProfiler
from rlinf.runners.session import RunSession
from rlinf.scheduler import WorkerGroup, wait_all
from rlinf.telemetry.rundir import PROFILE_FOLDER
from rlinf.utils.signals import hold_interrupts

if TYPE_CHECKING:
    from rlinf.scheduler import WorkerGroupFuncResult

Metrics = dict[str, float]


class StepRunner(abc.ABC):
    """Drives worker groups, an actor and perhaps a rollout among them, through the steps of a recipe.

    A subclass says what a step is (``make_step``, which ends with ``run_training``) and how the policy is evaluated.

    Args:
        cfg: The recipe.
        groups: The worker groups by component: ``actor``, and others.

    Attributes:
        step: Steps that have been made.
        training: The training call that runs, and the metrics of its step so far; None while there is none.
        unlogged: The metrics of the last step that has been made, until they are logged.
    """

    def __init__(self, cfg: RLinfConfig, groups: Mapping[str, WorkerGroup[Any]]) -> None:
        self.session = RunSession(cfg)
        self.groups = dict(groups)
        self.profiler = StepProfiler(cfg.cluster.profiling, self.groups, self.session.folder / PROFILE_FOLDER)
        self.limits = cfg.runner
        self.step = 0
        self.restarts = 0
        self.actor_lost = False
        self.started = time.monotonic()
        self.training: tuple[WorkerGroupFuncResult, Metrics] | None = None
        self.unlogged: Metrics = {}

    def init_workers(self) -> None:
        """Build what the groups hold, and load the checkpoint to continue from, if any."""
        wait_all(*self.init_calls(self.groups.values()))
        if self.session.resume_from is not None:
            self.load_checkpoint(str(self.session.resume_from))
            self.step = self.session.resume_step
            self.session.confirm_resumed()

    def init_calls(self, groups: Iterable[WorkerGroup[Any]]) -> list[WorkerGroupFuncResult]:
        """Let groups build what they hold, when they have been launched or launched again."""
        return [group.init_worker() for group in groups]

    def run(self) -> Metrics:
        """Run the recipe to its end.

        Returns:
            The last step's metrics.
        """
        with self.session:
            try:
                return self._loop()
            except KeyboardInterrupt:
                self._save_after_interrupt()
                raise

    def _loop(self) -> Metrics:
        metrics: Metrics | None = {}
        failure: WorkerError | None = None
        while True:
            try:
                if failure is not None:
                    metrics = {} if self.recover(failure) else metrics
                    failure = None
                    if metrics is None:
                        # The step is made again, by workers that have no weights yet.
                        self.update_rollout_weights()
                if metrics is None:
                    metrics = self.make_step()
                self._finish_step(metrics)
                if self._is_done(metrics):
                    return metrics
                metrics = None
            except WorkerError as error:
                if find_death(error) is None or self.restarts >= self.limits.max_restarts:
                    raise
                failure = error

    @abc.abstractmethod
    def make_step(self) -> Metrics:
        """Make one step, all but handing its weights on."""

    @abc.abstractmethod
    def evaluate(self) -> Metrics:
        """Return what the policy is worth, under ``eval/``."""

    @abc.abstractmethod
    def throughput(self, step_seconds: float) -> Metrics:
        """Return how much a step of such a length has got through."""

    def _finish_step(self, metrics: Metrics) -> None:
        """Hand the new weights on, evaluate, log and save; repeated as a whole if a worker dies meanwhile."""
        self.update_rollout_weights()
        if metrics:
            metrics |= self.collect_times()
        if self.session.evaluates(self.step):
            metrics |= self.evaluate()
        self._log(metrics)
        if self.session.saves(self.step, metrics):
            self.save_checkpoint(metrics)

    def _is_done(self, metrics: Metrics) -> bool:
        return self.limits.only_eval or self.step >= self.limits.total_steps or self.session.goal_reached(metrics)

    def update_rollout_weights(self) -> None:
        """Bring the rollout to the actor's current weights."""
        self.session.phase("sync weights")
        rollout = self.groups["rollout"].sync_model_from_actor(version=self.step)
        actor = self.groups["actor"].sync_model_to_rollout(version=self.step)
        wait_all(actor, rollout)

    def _log(self, metrics: Metrics) -> None:
        with hold_interrupts():
            self.session.log(self.step, metrics)
            self.unlogged = {}

    def run_training(self, metrics: Metrics) -> Metrics:
        """Update the policy; from here on the step counts as made.

        Args:
            metrics: Those of the step so far.

        Returns:
            These and those of the training.
        """
        self.session.phase("training")
        with hold_interrupts():
            training = self.groups["actor"].run_training(step=self.step + 1)
            self.training = (training, metrics)
        self.wait_for_training(training)
        return self._finish_training(training, metrics)

    def _finish_training(self, training: WorkerGroupFuncResult, metrics: Metrics) -> Metrics:
        """Wait for the training and count its step, together with what is known of it."""
        metrics = metrics | training.wait()[0]
        with hold_interrupts():
            self.training = None
            self.step += 1
            self.unlogged = metrics
        return metrics

    def wait_for_training(self, training: WorkerGroupFuncResult) -> None:
        """Wait until the actor has trained, or do something useful meanwhile."""
        training.wait()

    def collect_times(self) -> Metrics:
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

    def save_checkpoint(self, metrics: Metrics) -> None:
        """Write a checkpoint of the current step."""
        self.session.phase("checkpoint")
        folder = self.session.checkpoints.begin(self.step)
        self.write_checkpoint(str(folder))
        self.session.commit_checkpoint(self.step, metrics)

    def write_checkpoint(self, folder: str) -> None:
        """Write all that changes under ``folder``."""
        self.groups["actor"].save_checkpoint(f"{folder}/actor").wait()

    def load_checkpoint(self, folder: str) -> None:
        """Continue from what ``write_checkpoint`` wrote."""
        self.groups["actor"].load_checkpoint(f"{folder}/actor").wait()

    def start_over(self) -> None:  # noqa: B027 - optional
        """Undo what ``load_checkpoint`` would have replaced: there is no checkpoint yet."""

    def recover(self, error: WorkerError) -> bool:
        """Launch again what has died, and everything that was in the middle of talking to it.

        Rollout workers and those beside them come back at the actor's present weights, and the step is made again. An
        actor comes back at the newest checkpoint, from which the run goes on.

        Args:
            error: What ended the step.

        Returns:
            Whether the run has gone back to a checkpoint (or to its start).

        Raises:
            WorkerError: A worker died meanwhile, or could not start.
        """
        death = find_death(error)
        assert death is not None
        self.restarts += 1
        self.training = None
        self.session.restarted(death, self.restarts)
        # Remembered until the checkpoint is loaded: another worker may die before that.
        self.actor_lost = self.actor_lost or death.group == self.groups["actor"].name
        groups = [group for group in self.groups.values() if group is not self.groups["actor"] or self.actor_lost]
        for group in groups:
            group.relaunch(wait=False)
        wait_all(*self.init_calls([group.wait_ready() for group in groups]))
        if not self.actor_lost:
            return False
        self._restore_actor()
        self.actor_lost = False
        return True

    def _restore_actor(self) -> None:
        checkpoint = self.session.rewind()
        self.step, self.unlogged = self.session.resume_step, {}
        if checkpoint is not None:
            self.load_checkpoint(str(checkpoint))
        else:
            self.start_over()

    def abandon_step(self) -> None:
        """End the groups that take no part in a checkpoint; the others then give up what they were doing."""
        for group in self.groups.values():
            if group is not self.groups["actor"]:
                group.close()

    def _save_after_interrupt(self) -> None:
        """Finish a training phase that has begun, abandon anything else, and log and save the last whole step."""
        if self.actor_lost:
            self.session.message("Interrupted: the actor was being restored; its last checkpoint is the newest.")
            return
        self.session.message("Interrupted: saving a checkpoint ...")
        if self.training is not None:
            self._finish_training(*self.training)
        self.abandon_step()
        # The actor runs one method at a time: this returns when it has given up what it was doing.
        times = self.groups["actor"].pop_execution_times().wait()
        if self.unlogged:
            self._log(self.time_metrics({"actor": times}) | self.unlogged)
        if not self.session.is_saved(self.step) and self.step > 0:
            self.save_checkpoint({})


def find_death(error: BaseException | None) -> WorkerDiedError | None:
    """Return the death of a worker that an error was caused by, if one was."""
    while error is not None and not isinstance(error, WorkerDiedError):
        error = error.__cause__
    return error
