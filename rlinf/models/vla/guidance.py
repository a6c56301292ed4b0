"""Sentences that also say how good an action is, and velocities that are led away from what is usual.

RECAP (arXiv 2511.14759, section IV-B) and CFGRL (arXiv 2505.23458): a policy that knows both the sentence and the
sentence with the word for a good action can be led beyond the latter (classifier-free guidance, arXiv 2207.12598).
"""

from __future__ import annotations

import torch

from rlinf.config.schema.vla import GuidanceConfig
from rlinf.data.messages.embodied import Observation
from rlinf.models.vla.observed import tasks_of


def conditioned(task: str, is_positive: bool) -> str:
    """Return a sentence that also says whether the action is better than usual, as published checkpoints know it."""
    return f"{task}\nAdvantage: {'positive' if is_positive else 'negative'}"


def conditional_frames(is_positive: torch.Tensor, draws: torch.Tensor, cfg: GuidanceConfig) -> torch.Tensor:
    """Return which frames are learned with the word for their label, bool [n]; the others with the sentence alone.

    Args:
        is_positive: bool [n]; labels.
        draws: float32 [n], uniform in [0, 1).
        cfg: How many.
    """
    kept = draws >= cfg.unconditional_prob
    return kept & is_positive if cfg.positive_only_conditional else kept


def requesting(obs: Observation, cfg: GuidanceConfig) -> Observation:
    """Return observations whose sentences want actions as ``guidance.type`` says."""
    if cfg.type == "none":
        return obs
    return {**obs, "task_descriptions": [conditioned(task, cfg.type == "positive") for task in tasks_of(obs)]}


def led(velocity: torch.Tensor, scale: float) -> torch.Tensor:
    """Return ``v + scale * (v' - v)``, [N, ...], where ``v'`` is the velocity with the word and ``v`` that without.

    Args:
        velocity: [2 N, ...]; first those with it.
        scale: Beyond 1 it leads further than the word does.
    """
    conditional, unconditional = velocity.chunk(2)
    return torch.lerp(unconditional, conditional, scale)
