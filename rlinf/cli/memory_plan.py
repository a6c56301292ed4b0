"""Memory that a language model's recipe needs on each rank, from ``config.json`` alone: what ``rlinf plan`` prints."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

from rlinf.config.checks.run_sizes import WorldSizes
from rlinf.config.decoder_sizes import DecoderSizes, adapter_shapes, shard_elements
from rlinf.config.schema.root import LanguageConfig, ReasoningConfig
from rlinf.errors import ConfigError

_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
_MASTER_BYTES = 4
_HEAD_BYTES = 3 * 256 << 20
"""Of the output layer: logits, their gradient and one copy of a chunk (``rlinf.models.language.token_logprobs``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankBytes:
    """Memory of one actor rank.

    Attributes:
        weights: Masters in float32, and what is gathered between the forward and the backward pass.
        gradients: Of what is trained, in float32; whole until the last micro-batch where they are reduced once.
        moments: Two of each trained number, in float32.
        activations: Of one micro-batch: an estimate.
    """

    weights: int
    gradients: int
    moments: int
    activations: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.gradients + self.moments + self.activations


def memory_rows(cfg: LanguageConfig, world: WorldSizes) -> list[tuple[str, str]]:
    """Return the memory of actor and engine ranks; nothing where the model's configuration is not at hand.

    Args:
        cfg: The recipe.
        world: Sizes of the worker groups; one actor rank is assumed where the number is not known.
    """
    try:
        sizes = DecoderSizes.of_folder(Path(cfg.actor.model.model_path).expanduser())
    except ConfigError:
        return []
    ranks = world.actor or 1
    rows = [("actor memory", _in_words(rank_bytes(cfg, sizes, ranks), ranks))]
    if isinstance(cfg, ReasoningConfig) and cfg.critic.use_critic_model:
        rows += _critic_row(cfg, ranks)
    return [*rows, *_engine_row(cfg, sizes)]


def _critic_row(cfg: ReasoningConfig, ranks: int) -> list[tuple[str, str]]:
    """Return the memory of a critic of its own, which is on the actor's ranks under FSDP2."""
    section = cfg.critic
    chosen = section.model or cfg.actor.model
    try:
        sizes = DecoderSizes.of_folder(Path(chosen.model_path).expanduser())
    except ConfigError:
        return []
    actor = replace(cfg.actor, training_backend="fsdp", model=chosen, fsdp_config=section.fsdp_config)
    return [("critic memory", _in_words(rank_bytes(replace(cfg, actor=actor), sizes, ranks), ranks))]


def _in_words(found: RankBytes, ranks: int) -> str:
    return (
        f"{gib(found.total)} on each of {ranks} rank(s): weights {gib(found.weights)}, gradients "
        f"{gib(found.gradients)}, moments {gib(found.moments)}, activations about {gib(found.activations)}"
    )


def rank_bytes(cfg: LanguageConfig, sizes: DecoderSizes, num_ranks: int) -> RankBytes:
    """Return the memory of the actor rank that holds most.

    Activations are ``tokens * compute bytes * layers * activation_elements``; with gradient checkpointing those of one
    layer, and the input of every layer (``tokens * compute bytes * layers * H``). A chunk of logits is added.

    Args:
        cfg: The recipe.
        sizes: Of its model.
        num_ranks: Actor ranks.
    """
    if cfg.actor.training_backend == "megatron":
        return _megatron_bytes(cfg, sizes, num_ranks)
    model, fsdp = cfg.actor.model, cfg.actor.fsdp_config
    compute = _BYTES[fsdp.mixed_precision.param_dtype or model.precision]
    is_sharded = fsdp.sharding_strategy != "no_shard"
    shards = num_ranks if is_sharded else 1
    if fsdp.sharding_strategy == "hybrid_shard":
        shards = fsdp.hybrid_shard_size or 1
    parameters = sizes.parameters()
    trained = parameters
    if model.is_lora:
        trained = adapter_shapes(parameters, tuple(model.lora_target_modules), model.lora_rank)
        parameters = parameters | trained
    weights = _MASTER_BYTES * shard_elements(parameters, shards)
    keeps_gathered = fsdp.sharding_strategy == "shard_grad_op"
    if fsdp.reshard_after_forward is not None:
        keeps_gathered = is_sharded and not fsdp.reshard_after_forward
    if keeps_gathered and shards > 1:
        weights += compute * shard_elements(parameters, 1)
    is_whole = shards == 1 or fsdp.enable_gradient_accumulation
    return RankBytes(
        weights=weights,
        gradients=_MASTER_BYTES * shard_elements(trained, 1 if is_whole else shards),
        moments=2 * _MASTER_BYTES * shard_elements(trained, shards),
        activations=_activations(cfg, sizes, compute) // fsdp.context_parallel_size,
    )


def _megatron_bytes(cfg: LanguageConfig, sizes: DecoderSizes, num_ranks: int) -> RankBytes:
    """Return the memory of a rank of the first stage, which has most micro-batches under way, one for each stage."""
    megatron = cfg.actor.megatron
    layout, compute = megatron.layout(num_ranks), _BYTES[cfg.actor.model.precision]
    elements = 0
    for name, shape in sizes.parameters().items():
        tensor = 1 if "norm" in name or name.endswith("mlp.gate.weight") else layout.tensor
        if ".experts." in name:
            tensor = layout.expert_tensor * layout.expert
        if name in {"model.norm.weight", "lm_head.weight"} and layout.pipeline > 1:
            continue
        elements += math.prod(shape) // (tensor * (layout.pipeline if ".layers." in name else 1))
    replicas = layout.data * layout.context
    masters = 0 if compute == _MASTER_BYTES else _MASTER_BYTES * elements // replicas
    spread = layout.context * (layout.tensor if layout.sequence else 1)
    kept = sizes.num_layers * sizes.hidden + sizes.activation_elements()
    if megatron.recompute != "full":
        kept = sizes.num_layers * sizes.activation_elements()
    tokens = cfg.actor.micro_batch_size * cfg.max_sequence_tokens
    if cfg.runner.enable_dynamic_batch_size:
        tokens = cfg.runner.max_tokens_per_mbs
    # As many micro-batches as stages, each with a stage's share of the layers.
    activations = tokens * compute * kept // spread
    return RankBytes(
        weights=compute * elements + masters,
        gradients=_MASTER_BYTES * elements,
        moments=2 * _MASTER_BYTES * elements // replicas,
        activations=activations + min(_HEAD_BYTES, 12 * tokens * sizes.vocabulary // layout.tensor),
    )


def gib(size: int) -> str:
    """Return bytes as people read them."""
    return f"{size / (1 << 30):.2f} GiB" if size >= 1 << 20 else f"{size / 1024:.0f} KiB"


def _activations(cfg: LanguageConfig, sizes: DecoderSizes, compute: int) -> int:
    tokens = cfg.actor.micro_batch_size * cfg.max_sequence_tokens
    if cfg.runner.enable_dynamic_batch_size:
        tokens = cfg.runner.max_tokens_per_mbs
    layer, layers = sizes.activation_elements(), sizes.num_layers
    kept = layers * sizes.hidden + layer if cfg.actor.fsdp_config.gradient_checkpointing else layers * layer
    return tokens * compute * kept + min(_HEAD_BYTES, 12 * tokens * sizes.vocabulary)


def _engine_row(cfg: LanguageConfig, sizes: DecoderSizes) -> list[tuple[str, str]]:
    rollout = cfg.rollout
    if rollout is None:
        return []
    size = _BYTES[rollout.model.precision or cfg.actor.model.precision]
    devices = rollout.num_devices
    cache = size * sizes.cache_elements()
    most = cache * rollout.max_running_requests * cfg.max_context_tokens
    text = (
        f"weights {gib(size * shard_elements(sizes.parameters(), 1) // devices)} on each of {devices} device(s) of an "
        f"engine; key-value cache {cache / 1024:.1f} KiB a token, {gib(most // devices)} for "
        f"max_running_requests {rollout.max_running_requests} of {cfg.max_context_tokens} tokens"
    )
    return [("engine memory", text)]
