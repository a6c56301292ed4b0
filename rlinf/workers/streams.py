"""Tags of the messages between env, rollout and actor workers."""

from __future__ import annotations

WEIGHTS = "weights"
TRAJECTORIES = "trajectories"


def step_tag(mode: str, stage: int) -> str:
    """Return the tag under which an env rank and a rollout rank exchange steps and actions of a pipeline stage."""
    return f"{mode}/stage{stage}"


def reward_tag(stage: int) -> str:
    """Return the tag under which a rollout rank and a reward rank exchange outcomes and rewards of a pipeline stage."""
    return f"reward/stage{stage}"
