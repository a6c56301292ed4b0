"""A reward: scores chunks of actions by their results; its dataclass lists the keys it takes from recipes."""

from dataclasses import dataclass
from typing import Any

from rlinf.algorithms.rewards.base import EmbodiedReward
from rlinf.config.schema.reward import EmbodiedRewardConfig


@dataclass(frozen=True, kw_only=True)
class EffortRewardConfig(EmbodiedRewardConfig):
    """Keys of ``reward_type: effort``."""

    free_effort: float = 0.0
    """Size of an action that costs nothing."""


class EffortReward(EmbodiedReward):
    """Minus the size of each action, as far as it exceeds ``free_effort``."""

    def __call__(self, request: Any) -> Any:
        """Return float [B, C] for actions [B, C, A]."""
        return -(request.actions.norm(dim=-1) - self.cfg.free_effort).clamp(min=0)
