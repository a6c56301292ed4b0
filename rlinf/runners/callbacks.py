"""Callbacks: code of the user that a run calls in the driver, without another runner."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

StepFunction: TypeAlias = Callable[[int, Mapping[str, float]], object]
"""A function that is called as ``Callback.on_step`` is."""


class Callback:
    """Hooks of a run; a subclass overrides the ones that it needs. An exception that a hook raises ends the run."""

    def on_step(self, step: int, metrics: Mapping[str, float]) -> bool | None:
        """Called after the metrics of a step are logged.

        A run that goes back to a checkpoint after the death of a worker makes, and reports, the steps since it again.

        Args:
            step: Train steps made; 0 is the evaluation before the first.
            metrics: The step's, by name, those of its evaluation included.

        Returns:
            False ends the run: it writes a checkpoint and stops. Anything else lets it go on.
        """
        del step, metrics
        return None

    def on_checkpoint(self, step: int, folder: Path) -> None:
        """Called after a checkpoint is complete.

        Args:
            step: The step that it is of.
            folder: Its folder.
        """


class CallbackList:
    """The callbacks of one run, called in the order given.

    Args:
        callbacks: ``Callback`` objects, or functions that stand for ``on_step``.
    """

    def __init__(self, callbacks: Iterable[Callback | StepFunction] = ()) -> None:
        self._callbacks = [one if isinstance(one, Callback) else _FunctionCallback(one) for one in callbacks]

    def on_step(self, step: int, metrics: Mapping[str, float]) -> bool:
        """Call ``on_step`` of all; returns whether all let the run go on."""
        answers = [callback.on_step(step, metrics) for callback in self._callbacks]
        return all(answer is not False for answer in answers)

    def on_checkpoint(self, step: int, folder: Path) -> None:
        """Call ``on_checkpoint`` of all."""
        for callback in self._callbacks:
            callback.on_checkpoint(step, folder)


class _FunctionCallback(Callback):
    def __init__(self, function: StepFunction) -> None:
        self._function = function

    def on_step(self, step: int, metrics: Mapping[str, float]) -> bool | None:
        return False if self._function(step, metrics) is False else None
