"""Language models: who can use them, and keys of theirs that have no effect."""

from __future__ import annotations

from rlinf.config.checks.sizes import WorldSizes
from rlinf.config.problems import Problems
from rlinf.config.schema.model import CausalLMConfig
from rlinf.config.schema.root import RLinfConfig
from rlinf.config.unused import note_unused


def check_language_model(cfg: RLinfConfig, world: WorldSizes, problems: Problems) -> None:
    """Environments need a policy that acts, and adapters are there or not."""
    del world
    model, task_type = cfg.actor.model, cfg.runner.task_type
    if not isinstance(model, CausalLMConfig):
        return
    if task_type in {"embodied", "offline"}:
        problems.add(
            "actor.model.model_type",
            f"received {model.model_type}, which writes text; runner.task_type={task_type} needs a policy that acts. "
            "Set actor.model.model_type=mlp_policy, say.",
        )
    if not model.is_lora:
        names = ("lora_rank", "lora_alpha", "lora_target_modules")
        note_unused(problems, model, names, "actor.model", "without actor.model.is_lora")


RULES = (check_language_model,)
