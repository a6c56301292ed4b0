"""What means nothing while all workers run at the same time."""

from __future__ import annotations

from rlinf.config.checks.recipe_check import Check
from rlinf.config.schema.root import EmbodiedConfig


def check_offload(check: Check[EmbodiedConfig]) -> None:
    """Moving to host memory what the others do not need now takes turns."""
    cfg = check.cfg
    threshold = cfg.algorithm.staleness_threshold
    if threshold is None:
        return
    for path, enabled in (
        ("actor.enable_offload", cfg.actor.enable_offload),
        ("rollout.enable_offload", cfg.rollout.enable_offload),
        ("env.train.enable_offload", cfg.env.train.enable_offload),
    ):
        if enabled:
            check.problem(
                path,
                f"received True; with algorithm.staleness_threshold={threshold} environments, inference and training "
                "run at the same time. Remove it, and place them on devices of their own.",
            )


def check_weight_syncer(check: Check[EmbodiedConfig]) -> None:
    """Publishing patches waits for a reply, which a policy gives between rollouts."""
    cfg = check.cfg
    threshold = cfg.algorithm.staleness_threshold
    if threshold is not None and cfg.weight_syncer.type == "patch":
        check.problem(
            "weight_syncer.type",
            f"received patch; with algorithm.staleness_threshold={threshold} the actor would wait until rollouts have "
            "seen each update. Set weight_syncer.type=bucket.",
        )


RULES = (check_offload, check_weight_syncer)
