"""Asynchronous embodied training: environments and policy generate rollouts while the actor trains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlinf.config.schema.root import EmbodiedConfig
from rlinf.errors import WorkerDiedError
from rlinf.runners.embodied_runner import EmbodiedRunner
from rlinf.runners.step_runner import Metrics
from rlinf.scheduler import wait_all

if TYPE_CHECKING:
    from rlinf.scheduler import WorkerGroup, WorkerGroupFuncResult

_Calls = dict[str, "WorkerGroupFuncResult"]


class AsyncEmbodiedRunner(EmbodiedRunner):
    """Begins rollouts ahead of the step that trains on them, as far as ``algorithm.staleness_threshold`` allows.

    Rollout ``k`` begins once the weights of version ``k - 1 - threshold`` are published: slow training slows the
    environments down, and every rollout is trained on, in order. None begins beyond a step after which something is due
    that all workers take part in (an evaluation, a checkpoint, the end); there the run stands as a synchronous one.

    Args:
        cfg: The recipe.
        **groups: The other arguments of ``EmbodiedRunner``.

    Attributes:
        ahead: By step, the calls that make its rollout and those that then fetch how long they took; workers run their
            calls one after the other.
        times: Seconds of the groups that made the last rollout.
    """

    def __init__(self, cfg: EmbodiedConfig, **groups: Any) -> None:
        super().__init__(cfg, **groups)
        self.ahead: dict[int, tuple[_Calls, _Calls]] = {}
        self.times: dict[str, list[dict[str, float]]] = {}

    def sync_weights(self) -> None:
        """Publish the actor's current weights; rollouts that are being made take them when they come."""
        if not self.ahead:
            super().sync_weights()
            return
        self.logger.phase("publish weights")
        self.publish_weights().wait()
        self._begin_rollouts()

    def generate_rollouts(self) -> Metrics:
        """Wait for the oldest rollout that was begun, or begin it."""
        self.logger.phase("rollout")
        self._begin_rollouts()
        calls, times = self.ahead[self.step + 1]
        metrics = self.finish_rollout(calls)
        self.times = dict(zip(times, wait_all(*times.values()), strict=True))
        del self.ahead[self.step + 1]
        return metrics

    def measure_times(self) -> Metrics:
        """See ``StepRunner``; the groups that generate rollouts have reported their times with the rollout."""
        return self.time_metrics({"actor": self.actor.pop_execution_times().wait(), **self.times})

    def recover(self, death: WorkerDiedError) -> bool:
        """See ``StepRunner``; rollouts that were begun are generated again."""
        self.ahead.clear()
        return super().recover(death)

    def is_stopping(self) -> bool:
        """See ``StepRunner``; the rollouts that were begun are trained on before."""
        return super().is_stopping() and not self.ahead

    def _begin_rollouts(self) -> None:
        """Begin every rollout that may begin with the weights published last."""
        threshold = self.cfg.algorithm.staleness_threshold
        assert threshold is not None
        step = max(self.ahead, default=self.step)
        while step <= self.step + threshold and (step == self.step or not self.logger.is_anything_due(step)):
            step += 1
            calls = self.begin_rollout(step)
            self.ahead[step] = (calls, {name: self.groups[name].pop_execution_times() for name in calls})


def make_embodied_runner(cfg: EmbodiedConfig, **groups: WorkerGroup[Any]) -> EmbodiedRunner:
    """Return the runner of ``task_type: embodied``; ``algorithm.staleness_threshold`` makes it asynchronous.

    Args:
        cfg: The recipe.
        **groups: The other arguments of ``EmbodiedRunner``.
    """
    runner = EmbodiedRunner if cfg.algorithm.staleness_threshold is None else AsyncEmbodiedRunner
    return runner(cfg, **groups)
