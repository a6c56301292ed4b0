"""Where episodes are collected, and what means nothing where they are not."""

from __future__ import annotations

from rlinf.config.checks.recipe_check import Check
from rlinf.config.schema.env import MODEL_POLICIES, DataCollectionConfig
from rlinf.config.schema.root import EmbodiedConfig

_KEYS = tuple(name for name in DataCollectionConfig.__dataclass_fields__ if name != "enabled")


def check_collection(check: Check[EmbodiedConfig]) -> None:
    """Episodes are collected while a run does nothing but evaluate."""
    cfg = check.cfg
    if cfg.env.train.data_collection != DataCollectionConfig():
        check.problem("env.train.data_collection", "not used: env.eval plays what is collected. Move it there.")
    if cfg.env.eval is None:
        return
    collection, path = cfg.env.eval.data_collection, "env.eval.data_collection"
    if not collection.enabled:
        check.unused(collection, _KEYS, path, "without enabled")
        return
    if not cfg.runner.only_eval:
        check.problem(
            f"{path}.enabled",
            "received True; episodes are collected with runner.only_eval=true, which "
            "examples/embodiment/collect_data.sh sets. Remove it, or set that.",
        )
    chunks = cfg.actor.model.num_action_chunks
    if collection.policy not in MODEL_POLICIES and chunks > 1:
        check.problem(
            f"{path}.policy",
            f"received '{collection.policy}', a scripted policy, which chooses single actions; actor.model."
            f"num_action_chunks is {chunks}. Set that to 1.",
        )


RULES = (check_collection,)
