"""Writes the checkpoints of a run, at once or while it goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlinf.checkpoint.layout import folder_name
from rlinf.errors import RLinfError, WorkerError
from rlinf.runners.callbacks import CallbackList
from rlinf.runners.run_logger import RunLogger
from rlinf.scheduler import WorkerGroup

_LAST_SECONDS = 60.0
"""For which a run that has failed waits for a checkpoint: the actor may not answer any more."""


class CheckpointWriter:
    """Has the groups write checkpoints, and publishes what they have written.

    Args:
        logger: Of the run.
        actor: The group that may write in the background; None where nothing is trained or saved.
        in_background: Whether it does (``runner.async_save``).

    Attributes:
        pending: Step of the checkpoint that the actor is writing, and the metrics of this step; None if it is not.
        callbacks: Are called after each checkpoint.
    """

    def __init__(self, logger: RunLogger, actor: WorkerGroup[Any] | None, *, in_background: bool) -> None:
        self._logger, self._actor, self._in_background = logger, actor, in_background
        self.pending: tuple[int, Mapping[str, float]] | None = None
        self.callbacks = CallbackList()

    def save(self, step: int, metrics: Mapping[str, float], write: Callable[[str], None]) -> None:
        """Write a checkpoint, after the former one.

        Args:
            step: The run's.
            metrics: Of this step.
            write: Has the groups write below a folder.

        Raises:
            WorkerError: This checkpoint, or the former one, cannot be written.
        """
        self._logger.phase("checkpoint")
        if self._in_background:
            self.publish(wait=True)
        write(str(self._logger.checkpoints.begin(step)))
        if self._in_background:
            self.pending = (step, dict(metrics))
            self._logger.saved_step = step
        else:
            self._commit(step, metrics)

    def publish(self, *, wait: bool, timeout: float | None = None) -> None:
        """Publish the checkpoint that the actor is writing, if it is.

        Args:
            wait: Until it is written; else it is published only if it is.
            timeout: Seconds to wait for the actor; None is as long as it takes.

        Raises:
            WorkerError: It could not be written.
            CommTimeoutError: The time is up.
        """
        if self._actor is None or (self.pending is None and not wait):
            return
        try:
            is_written = all(self._actor.finish_checkpoint(wait=wait).wait(timeout=timeout))
        except WorkerError:
            self.pending = None
            raise
        if is_written and self.pending is not None:
            (step, metrics), self.pending = self.pending, None
            self._commit(step, metrics)

    def publish_last(self) -> None:
        """Publish what is being written by a run that has failed, if that is possible; else say so."""
        if self.pending is None:
            return
        step, _ = self.pending
        try:
            self.publish(wait=True, timeout=_LAST_SECONDS)
        except RLinfError as error:
            self._logger.message(f"The checkpoint of step {step} is not written: {error}")

    def forget(self) -> None:
        """Give up what was being written: the actor has died."""
        if self.pending is not None:
            self._logger.message(f"The checkpoint of step {self.pending[0]} was being written, and is lost.")
        self.pending = None

    def _commit(self, step: int, metrics: Mapping[str, float]) -> None:
        self._logger.commit_checkpoint(step, metrics)
        self.callbacks.on_checkpoint(step, self._logger.checkpoints.root / folder_name(step))
