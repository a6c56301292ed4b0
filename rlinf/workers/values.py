"""How many values a policy predicts per observation."""

from __future__ import annotations

from rlinf.config.schema.root import EmbodiedConfig


def num_values(cfg: EmbodiedConfig) -> int:
    """Return 1 for chunk-level rewards, or the chunk length where every action has its own reward."""
    return cfg.actor.model.num_action_chunks if cfg.algorithm.reward_type == "action_level" else 1
