"""Whether a recipe can be trained by the engine that ``actor.training_backend`` chooses."""

from __future__ import annotations

from rlinf.config.checks.recipe_check import Check
from rlinf.config.parse import fields_of
from rlinf.config.schema.megatron import MegatronConfig
from rlinf.config.schema.root import LanguageConfig, RLinfConfig
from rlinf.config.schema.train import FSDPConfig

_FSDP = "Set actor.training_backend=fsdp"


def check_sections(check: Check[RLinfConfig]) -> None:
    """Keys of one engine are not written for another."""
    actor = check.cfg.actor
    reason = f"by actor.training_backend={actor.training_backend}"
    if actor.training_backend != "megatron":
        names = [field.name for field in fields_of(MegatronConfig)]
        check.unused(actor.megatron, names, "actor.megatron", reason)
        return
    check.unused(actor.fsdp_config, [field.name for field in fields_of(FSDPConfig)], "actor.fsdp_config", reason)
    if not isinstance(check.cfg, LanguageConfig):
        check.problem("actor.training_backend", f"received megatron, which trains language models alone. {_FSDP}.")


def check_layout(check: Check[LanguageConfig]) -> None:
    """The ranks can share the model as ``actor.megatron`` says, as far as that is known without the model."""
    actor, world = check.cfg.actor, check.world.actor
    if actor.training_backend != "megatron":
        return
    sizes = actor.megatron
    for problem in sizes.layout(world or sizes.replica_size).problems(world_size=world or sizes.replica_size):
        check.problem("actor.megatron", f"{problem} Change the sizes, or the actor's ranks in cluster.")


def check_model(check: Check[LanguageConfig]) -> None:
    """The engine can do with the model what the recipe wants."""
    cfg = check.cfg
    if cfg.actor.training_backend != "megatron":
        return
    if cfg.actor.model.is_lora:
        check.problem("actor.model.is_lora", f"not possible with actor.training_backend=megatron. {_FSDP}.")
    if cfg.runner.ckpt_path is not None:
        check.problem(
            "runner.ckpt_path",
            "not possible with actor.training_backend=megatron: ranks read their parts from actor.model.model_path. "
            "Name the weights there.",
        )


SHARED_RULES = (check_sections,)
RULES = (check_layout, check_model)
