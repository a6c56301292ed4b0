"""A loop: that of embodied RL, with one more metric."""

from collections import deque
from typing import Any

from rlinf.runners.embodied_runner import EmbodiedRunner
from rlinf.runners.launch import launch
from rlinf.runners.step_runner import Metrics


class SmoothedRunner(EmbodiedRunner):
    """Also reports the mean return of the last five steps."""

    def __init__(self, cfg: Any, **groups: Any) -> None:
        super().__init__(cfg, **groups)
        self.returns = deque(maxlen=5)

    def make_step(self) -> Metrics:
        metrics = super().make_step()
        if "env/return" in metrics:
            self.returns.append(metrics["env/return"])
            metrics["env/return_smoothed"] = sum(self.returns) / len(self.returns)
        return metrics


def launch_smoothed(cfg: Any) -> dict[str, float]:
    """Run a recipe of ``task_type: embodied`` with this loop."""
    return launch(cfg, SmoothedRunner)
