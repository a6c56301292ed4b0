"""Where episodes are collected, and what means nothing where they are not."""

from __future__ import annotations

from rlinf.config.checks.run_sizes import WorldSizes
from rlinf.config.problems import Problems
from rlinf.config.schema.env import MODEL_POLICIES, DataCollectionConfig
from rlinf.config.schema.root import EmbodiedConfig
from rlinf.config.unused import note_unused

_KEYS = tuple(name for name in DataCollectionConfig.__dataclass_fields__ if name != "enabled")


def check_collection(cfg: EmbodiedConfig, world: WorldSizes, problems: Problems) -> None:
    """Episodes are collected while a run does nothing but evaluate."""
    del world
    if cfg.env.train.data_collection != DataCollectionConfig():
        problems.add("env.train.data_collection", "not used: env.eval plays what is collected. Move it there.")
    if cfg.env.eval is None:
        return
    collection, path = cfg.env.eval.data_collection, "env.eval.data_collection"
    if not collection.enabled:
        note_unused(problems, collection, _KEYS, path, "without enabled")
        return
    if not cfg.runner.only_eval:
        problems.add(
            f"{path}.enabled",
            "received True; episodes are collected with runner.only_eval=true, which "
            "examples/embodiment/collect_data.sh sets. Remove it, or set that.",
        )
    chunks = cfg.actor.model.num_action_chunks
    if collection.policy not in MODEL_POLICIES and chunks > 1:
        problems.add(
            f"{path}.policy",
            f"received '{collection.policy}', a scripted policy, which chooses single actions; actor.model."
            f"num_action_chunks is {chunks}. Set that to 1.",
        )


RULES = (check_collection,)
