"""Dynamic loss scaling for fp16, decided from the global gradient norm so that all ranks agree."""

from __future__ import annotations


class LossScaler:
    """Keeps fp16 gradients away from underflow: doubles its scale after a run of good steps, halves it after a bad one.

    Args:
        enabled: False keeps the scale at 1.
    """

    GROWTH_INTERVAL = 2000

    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled
        self.scale = 65536.0 if enabled else 1.0
        self.good_steps = 0

    def update(self, *, finite: bool) -> None:
        """Take note of whether the last gradient was finite."""
        if not self.enabled:
            return
        if not finite:
            self.scale, self.good_steps = max(1.0, self.scale / 2), 0
            return
        self.good_steps += 1
        if self.good_steps % self.GROWTH_INTERVAL == 0:
            self.scale *= 2

    def state_dict(self) -> dict[str, float]:
        """Return scale and counter."""
        return {"scale": self.scale, "good_steps": self.good_steps}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Restore scale and counter."""
        self.scale, self.good_steps = float(state["scale"]), int(state["good_steps"])
