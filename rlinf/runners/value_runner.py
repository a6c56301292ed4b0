"""``task_type: value``: a model learns to judge recorded frames, and labels them; the actor is the only group."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from rlinf.config.schema.root import ValueConfig
from rlinf.runners.step_runner import Metrics, StepRunner
from rlinf.scheduler import WorkerGroup
from rlinf.workers.actor.actor_worker import ActorWorker

if TYPE_CHECKING:
    from rlinf.runners.launch import GroupLauncher


class ValueRunner(StepRunner):
    """Drives the actor through a recipe of ``task_type: value``.

    Args:
        cfg: The recipe.
        actor: Trains the model.
    """

    def __init__(self, cfg: ValueConfig, actor: WorkerGroup[ActorWorker]) -> None:
        super().__init__(cfg, {"actor": actor})
        self.cfg, self.actor = cfg, actor

    def sync_weights(self) -> None:
        """See ``StepRunner``: there is no rollout."""

    def evaluate(self) -> Metrics:
        """See ``StepRunner``: judge the frames of ``data.val``."""
        if not self.cfg.data.val:
            return {}
        self.logger.phase("evaluation")
        return {f"eval/{name}": value for name, value in self.actor.evaluate(None).wait()[0].items()}

    def write_checkpoint(self, folder: str) -> None:
        """See ``StepRunner``; the model also as rewards read it."""
        super().write_checkpoint(folder)
        self.actor.publish(folder).wait()

    def finish(self) -> None:
        """See ``StepRunner``: label the data sets, if the recipe names the labels."""
        tag = self.cfg.data.advantage_tag
        if tag is None:
            return
        self.logger.phase("labels")
        found = self.actor.label(tag).wait()[0]
        paths = ", ".join(source.path for source in self.cfg.data.sources)
        self.logger.message(
            f"Labelled {found['frames']:.0f} frames of {paths} as '{tag}': {found['positive']:.1%} are positive."
        )

    def throughput(self, step_seconds: float) -> Metrics:
        """See ``StepRunner``: samples that were trained on."""
        samples = self.cfg.algorithm.update_epoch * self.cfg.actor.global_batch_size
        return {"time/samples_per_second": samples / step_seconds}


def read_nothing(cfg: ValueConfig, _: ExitStack) -> tuple[ValueConfig, dict[str, Any]]:
    """Read nothing before the launch: the actor's ranks open the data sets; see ``TaskType.data``.

    Args:
        cfg: The recipe.

    Returns:
        The recipe as it is.
    """
    return cfg, {}


def start_workers(cfg: ValueConfig, launcher: GroupLauncher) -> ValueConfig:
    """Start the actor; see ``TaskType.workers``.

    Args:
        cfg: The recipe.
        launcher: Starts it.

    Returns:
        The recipe as it is.
    """
    launcher.start("actor", ActorWorker.create_group(cfg, {}))
    return cfg
