"""``task_type: collect``: a script or an operator plays episodes, which become a data set; there is no actor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rlinf.config.schema.root import CollectConfig
from rlinf.runners.output_paths import video_folders
from rlinf.runners.step_runner import Metrics, StepRunner
from rlinf.scheduler import WorkerGroup, wait_all
from rlinf.workers.env.env_worker import EnvWorker
from rlinf.workers.rollout.rollout_worker import MultiStepRolloutWorker

if TYPE_CHECKING:
    from rlinf.runners.launch import GroupLauncher


class CollectRunner(StepRunner):
    """Plays the episodes of ``env.eval`` once.

    Args:
        cfg: The recipe.
        rollout: Runs the script.
        env: Steps the environments, and writes their episodes down.
    """

    def __init__(
        self, cfg: CollectConfig, rollout: WorkerGroup[MultiStepRolloutWorker], env: WorkerGroup[EnvWorker]
    ) -> None:
        super().__init__(cfg, {"rollout": rollout, "env": env})
        self.rollout, self.env = rollout, env
        self.logger.output_paths["video"] = video_folders(cfg)

    def sync_weights(self) -> None:
        """See ``StepRunner``: there are none."""

    def evaluate(self) -> Metrics:
        """See ``StepRunner``: play the episodes."""
        self.logger.phase("collection")
        ranks, _ = wait_all(self.env.evaluate(), self.rollout.evaluate())
        return self.logger.log_evaluation(self.step, [episode for rank in ranks for episode in rank])

    def throughput(self, step_seconds: float) -> Metrics:
        """See ``StepRunner``: no step is made."""
        del step_seconds
        return {}

    @contextmanager
    def save_on_interrupt(self) -> Iterator[None]:
        """See ``StepRunner``: there is no checkpoint to write."""
        yield


def start_workers(cfg: CollectConfig, launcher: GroupLauncher) -> CollectConfig:
    """Start the worker groups of a recipe that collects; see ``TaskType.workers``.

    Args:
        cfg: The recipe.
        launcher: Starts them.

    Returns:
        The recipe as it is.
    """
    num_env, num_rollout = launcher.sizes["env"], launcher.sizes["rollout"]
    launcher.start("env", EnvWorker.create_group(cfg, num_rollout, 0))
    launcher.start("rollout", MultiStepRolloutWorker.create_group(cfg, num_env, 0))
    return cfg
