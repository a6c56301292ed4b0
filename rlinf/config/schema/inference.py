"""The ``inference`` section: a group that recomputes the log-probabilities of answers in the actor's stead."""

from __future__ import annotations

from dataclasses import dataclass

from rlinf.config.schema.base import ConfigSection, PositiveInt


@dataclass(frozen=True, kw_only=True)
class InferenceConfig(ConfigSection):
    """Ranks that recompute answers' log-probabilities, which the actor otherwise does once all answers are there.

    They do it group by group, while further answers are generated. Each holds the whole model without an optimizer, or
    its shard of it (``shard_model``), takes the actor's weights at every sync, and computes as the actor does
    (``actor.model``, ``actor.fsdp_config``, ``actor.megatron``).
    Any reasoning recipe with synchronous steps can have the group; on a device of its own, by these two overrides::

        +inference={} "cluster.component_placement={actor: 0-3, rollout: 4-6, inference: 7, reward: 0}"

    """

    group_name: str = "InferenceGroup"
    """Name of the worker group."""
    max_tokens_per_mbs: PositiveInt | None = None
    """Tokens of one forward pass on one rank; null takes ``runner.max_tokens_per_mbs``."""
    micro_batch_size: PositiveInt | None = None
    """Answers of one forward pass where ``runner.enable_dynamic_batch_size`` is false; null takes
    ``actor.micro_batch_size``."""
    shard_model: bool = False
    """Share one model among all ranks, as ``actor.fsdp_config.sharding_strategy`` or ``actor.megatron`` says: for a
    model that does not fit on a device. All ranks then compute each group of answers together. False lets each hold the
    whole model, which needs ``actor.megatron`` without tensor, pipeline, context and expert parallelism."""
    enable_offload: bool = False
    """Move weights to host memory while the actor trains on the same devices."""
