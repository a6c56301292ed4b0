"""The offline loop: train on recorded data, and evaluate now and then through the rollout and env groups."""

from __future__ import annotations

import time

from rlinf.runners.embodied_runner import EmbodiedRunner
from rlinf.runners.step_runner import Metrics


class OfflineRunner(EmbodiedRunner):
    """Drives the actor through a recipe of ``task_type: offline``; everything around a step is as in its base."""

    def make_step(self) -> Metrics:
        """See ``EmbodiedRunner``: a step is its updates."""
        self.started = time.monotonic()
        with self.profiler.step(self.step + 1):
            return self.run_training({})

    def throughput(self, step_seconds: float) -> Metrics:
        """See ``EmbodiedRunner``: samples that were learned from."""
        samples = self.cfg.algorithm.update_epoch * self.cfg.actor.global_batch_size
        return {"time/samples_per_second": samples / step_seconds}
