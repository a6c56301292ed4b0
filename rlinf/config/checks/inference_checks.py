"""Whether a group of its own can recompute the log-probabilities of a reasoning recipe."""

from __future__ import annotations

from rlinf.config.checks.recipe_check import Check
from rlinf.config.schema.inference import InferenceConfig
from rlinf.config.schema.root import ReasoningConfig


def check_inference(check: Check[ReasoningConfig]) -> None:
    """Log-probabilities are wanted, and the ones that the group computes are those that the actor would."""
    cfg = check.cfg
    algorithm = cfg.algorithm
    if cfg.inference is None:
        return
    if not algorithm.recompute_logprobs:
        check.problem(
            "inference",
            "not used with algorithm.recompute_logprobs=false: log-probabilities are the engine's. Remove the section, "
            "or set algorithm.recompute_logprobs=true.",
        )
    if algorithm.staleness_threshold:
        check.problem(
            "inference",
            f"not possible with algorithm.staleness_threshold={algorithm.staleness_threshold}: answers are trained on "
            "with later weights than those that the group has when they finish. Remove the section, and the actor "
            "recomputes them; or set algorithm.staleness_threshold=null.",
        )
    if cfg.actor.model.add_value_head:
        check.problem(
            "inference",
            "not possible with actor.model.add_value_head=true: the actor computes values, and log-probabilities in "
            "the same pass. Remove the section, or choose an algorithm.adv_type that needs no values.",
        )


def check_shards(check: Check[ReasoningConfig]) -> None:
    """A model that is shared among ranks is sharded, over as many as the actor's sizes say."""
    section, actor = check.cfg.inference, check.cfg.actor
    if section is None:
        return
    if actor.training_backend == "megatron":
        _check_layout(check, section)
    elif section.shard_model and actor.fsdp_config.sharding_strategy == "no_shard":
        check.problem(
            "inference.shard_model",
            "not possible with actor.fsdp_config.sharding_strategy=no_shard: each rank would hold the whole model. Set "
            "inference.shard_model=false, or sharding_strategy=full_shard.",
        )


def _check_layout(check: Check[ReasoningConfig], section: InferenceConfig) -> None:
    """Report ranks that cannot hold the model as ``actor.megatron`` says; its sizes alone are the actor's rule."""
    sizes, ranks = check.cfg.actor.megatron, check.world.inference
    # Experts are spread over replicas.
    needed = sizes.replica_size * sizes.expert_model_parallel_size
    if needed > 1 and not section.shard_model:
        check.problem(
            "inference.shard_model",
            f"received False; actor.megatron spreads the model over {needed} ranks, which compute together. Set "
            "inference.shard_model=true.",
        )
    elif ranks is not None and ranks % needed and section.shard_model:
        check.problem(
            "cluster.component_placement.inference",
            f"received {ranks} rank(s); the group shares the model as the actor does, and actor.megatron spreads it "
            f"over {needed}. Place a multiple of {needed} ranks, or change the sizes in actor.megatron.",
        )


def check_passes(check: Check[ReasoningConfig]) -> None:
    """The longest sequence fits into a pass, and the budget is the one that counts."""
    cfg = check.cfg
    section, longest = cfg.inference, cfg.max_sequence_tokens
    if section is None:
        return
    if not cfg.runner.enable_dynamic_batch_size:
        reason = "without runner.enable_dynamic_batch_size"
        check.unused(section, ("max_tokens_per_mbs",), "inference", reason)
        return
    check.unused(section, ("micro_batch_size",), "inference", "with runner.enable_dynamic_batch_size")
    if section.max_tokens_per_mbs is not None and section.max_tokens_per_mbs < longest:
        check.problem(
            "inference.max_tokens_per_mbs",
            f"received {section.max_tokens_per_mbs}; an answer may have {cfg.sequence_keys} = {longest} tokens with "
            f"its prompt. Raise it to {longest} at least.",
        )


RULES = (check_inference, check_shards, check_passes)
