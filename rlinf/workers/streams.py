"""Tags of the messages between env, rollout and actor workers."""

from __future__ import annotations

from rlinf.config.schema.root import EmbodiedConfig

WEIGHTS = "weights"
PATCH_BASE = "weights/patch_base"
TRAJECTORIES = "trajectories"


def collecting_group(cfg: EmbodiedConfig) -> str:
    """Return the name of the group that collects trajectories, has them rewarded and hands them to the actor."""
    return cfg.env.group_name if cfg.runner.enable_decoupled_mode else cfg.rollout.group_name


def step_tag(mode: str, stage: int) -> str:
    """Return the tag under which an env rank and a rollout rank exchange steps and actions of a pipeline stage."""
    return f"{mode}/stage{stage}"


def reward_tag(stage: int) -> str:
    """Return the tag under which a collecting rank and a reward rank exchange step results and rewards of a stage."""
    return f"reward/stage{stage}"
