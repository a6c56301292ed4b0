"""The ``actor``, ``rollout`` and ``weight_syncer`` sections."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from rlinf.config.schema.base import (
    ConfigSection,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Precision,
)
from rlinf.config.schema.megatron import MegatronConfig
from rlinf.config.schema.model import CausalLMConfig, ModelConfig, NoModelConfig, RolloutModelConfig
from rlinf.config.schema.optim import AdamWConfig
from rlinf.registry import Registry


@dataclass(frozen=True, kw_only=True)
class OptimConfig(AdamWConfig):
    """``actor.optim``: the optimizer of the policy and of its value head."""

    value_lr: PositiveFloat | None = None
    """Learning rate of the value head; null takes ``lr``."""
    critic_warmup_steps: NonNegativeInt = 0
    """First optimizer steps in which only the value head learns."""


@dataclass(frozen=True, kw_only=True)
class MixedPrecisionConfig(ConfigSection):
    """``actor.fsdp_config.mixed_precision``: null takes ``actor.model.precision`` (parameters) or fp32 (reduction)."""

    param_dtype: Precision | None = None
    """Compute precision of parameters and activations."""
    reduce_dtype: Precision | None = None
    """Precision of the gradient reduction."""


@dataclass(frozen=True, kw_only=True)
class FSDPConfig(ConfigSection):
    """``actor.fsdp_config``."""

    strategy: Literal["fsdp", "fsdp2"] = "fsdp2"
    """Implementation of sharding; ``fsdp`` is a former name: both are FSDP2."""
    sharding_strategy: Literal["full_shard", "shard_grad_op", "hybrid_shard", "no_shard"] = "full_shard"
    """What is sharded: everything, all but parameters between forward and backward, everything over the
    ``hybrid_shard_size`` ranks of each replica, or nothing (replicas)."""
    hybrid_shard_size: PositiveInt | None = None
    """Ranks that hold a replica under ``hybrid_shard``, those of a node, say: parameters are gathered among them alone,
    and gradients are summed over replicas. Divides the number of actor ranks."""
    mixed_precision: MixedPrecisionConfig = field(default_factory=MixedPrecisionConfig)
    """Compute precision over fp32 master weights."""
    context_parallel_size: PositiveInt = 1
    """Ranks over which the tokens of a language model's packs are split: each computes its own, and sees the keys of
    all. Divides the number of actor ranks."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass."""
    cpu_offload: bool = False
    """Keep parameters, gradients and optimizer state in host memory."""
    offload_pin_memory: bool = True
    """Lock the pages of what ``cpu_offload`` keeps: copies are faster, and other processes cannot use the memory."""
    reshard_after_forward: bool | None = None
    """Drop gathered parameters after the forward pass; null does so under ``full_shard`` and
    ``hybrid_shard``."""
    enable_gradient_accumulation: bool = True
    """Reduce gradients once per optimizer step: fewer messages, but each rank holds the gradient of the whole model.
    False reduces after every micro-batch, and each rank holds its shard."""
    forward_prefetch: bool = False
    """Gather a layer's parameters while the one before it computes, as the gradient's pass always does."""


@dataclass(frozen=True, kw_only=True)
class ActorConfig(ConfigSection):
    """The ``actor`` section."""

    group_name: str = "ActorGroup"
    """Name of the worker group."""
    training_backend: Annotated[str, train_engines] = "fsdp"
    """Training engine."""
    model: ModelConfig
    """The policy."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    """Optimizer of the policy."""
    critic_optim: AdamWConfig | None = None
    """Optimizer of the Q heads (off-policy losses); null takes the keys of ``optim``."""
    fsdp_config: FSDPConfig = field(default_factory=FSDPConfig)
    """Sharding and precision; read where ``training_backend`` is ``fsdp``."""
    megatron: MegatronConfig = field(default_factory=MegatronConfig)
    """How Megatron-Core spreads the model; read where ``training_backend`` is ``megatron``."""
    global_batch_size: PositiveInt
    """Samples (chunk steps) per optimizer step, over all ranks; off-policy, those sampled from the replay."""
    micro_batch_size: PositiveInt
    """Samples per forward and backward pass on one rank; changes memory and speed, never the gradient."""
    seed: NonNegativeInt = 1234
    """Seed of initial weights, of exploration and of shuffling."""
    enable_offload: bool = False
    """Move weights and optimizer state to host memory while the rollout runs."""
    sft_loss_weight: NonNegativeFloat = 0.0
    """Co-training: weight of the model's supervised loss on frames of ``data``, next to the policy loss; 0 for none."""
    sft_batch_size: PositiveInt | None = None
    """Co-training: frames per optimizer step, over all ranks; null takes ``global_batch_size``."""

    def required_packages(self) -> tuple[str, ...]:
        """See ``ConfigSection``."""
        return ("megatron",) if self.training_backend == "megatron" else ()


@dataclass(frozen=True, kw_only=True)
class CollectActorConfig(ActorConfig):
    """The ``actor`` section of ``task_type: collect``, which has no actor."""

    model: ModelConfig = field(default_factory=NoModelConfig)
    """Not used."""
    global_batch_size: PositiveInt = 1
    """Not used."""
    micro_batch_size: PositiveInt = 1
    """Not used."""


@dataclass(frozen=True, kw_only=True)
class TextActorConfig(ActorConfig):
    """The ``actor`` section of language models; a sample of a batch is an answer."""

    model: CausalLMConfig
    """The language model."""
    routing_replay: Literal["none", "recompute", "rollout"] = "none"
    """Which experts tokens go to in training passes: those that the router chooses then, those of the pass that
    recomputed the old log-probabilities (``recompute``), or those of the engine (``rollout``). The latter also hold in
    the pass that recomputes log-probabilities."""
    moe_aux_loss_coeff: NonNegativeFloat = 0.0
    """Coefficient of the loss that balances the load of experts; its shares of tokens are those of the whole update
    batch, independent of micro-batches."""


@dataclass(frozen=True, kw_only=True)
class RolloutConfig(ConfigSection):
    """The ``rollout`` section."""

    group_name: str = "RolloutGroup"
    """Name of the worker group."""
    rollout_backend: Annotated[str, inference_backends] = "huggingface"
    """Inference engine; ``huggingface`` runs the model's own PyTorch code."""
    model: RolloutModelConfig = field(default_factory=RolloutModelConfig)
    """Where the rollout's model differs from the actor's."""
    pipeline_stage_num: PositiveInt = 1
    """Parts the environments are cut into: one part steps while another part's actions are inferred."""
    enable_offload: bool = False
    """Move weights to host memory while the actor trains."""
    enable_torch_compile: bool = False
    """Compile the layers of a vision-language-action policy (``torch.compile``) for rollouts and evaluations. The first
    chunks then take minutes, and log-probabilities differ from those of training by rounding."""
    enable_cuda_graph: bool = False
    """Replay the kernels of these layers as CUDA graphs, compiled or not. Needs a GPU, which keeps the weights."""


@dataclass(frozen=True, kw_only=True)
class BucketConfig(ConfigSection):
    """``weight_syncer.bucket``."""

    bucket_size: PositiveInt = 32 << 20
    """Bytes per bucket."""
    bucket_dtype: Precision | None = None
    """Precision in which weights are published; null takes that of generation engines, and the master weights' where a
    receiver needs them (adapters, an inference group, policies of environments). Master weights never change by it."""
    bucket_device: Literal["cpu", "cuda"] = "cpu"
    """Where buckets are filled: ``cuda`` keeps them on the actor's device, and receivers of the same node take them
    through CUDA IPC (the same device) or NCCL (another one). A receiver then holds a second copy of the weights on its
    device until they are loaded. An actor without a device of its own fills them in host memory."""


@dataclass(frozen=True, kw_only=True)
class WeightSyncerConfig(ConfigSection):
    """The ``weight_syncer`` section."""

    type: Annotated[str, weight_syncers] = "bucket"
    """How weights travel from actor to rollout: ``bucket`` sends all of them; ``patch`` what changed since the last
    update, for links that are slower than memory: both ends then keep a copy of what was published in host memory."""
    bucket: BucketConfig = field(default_factory=BucketConfig)
    """Keys of the bucket syncer."""


train_engines: Registry[Any] = Registry("training backend")
"""By ``actor.training_backend``; ``rlinf.hybrid_engines.train.train_engine.TrainEngine`` is the contract."""
train_engines.register("fsdp", "rlinf.hybrid_engines.train.fsdp:FSDPEngine")
train_engines.register("megatron", "rlinf.hybrid_engines.train.megatron:MegatronEngine")

inference_backends: Registry[Any] = Registry("inference backend")
"""By ``rollout.rollout_backend`` of policies; called as ``build(cfg, num_values=V, precision=..., device=...)``."""
inference_backends.register("huggingface", "rlinf.hybrid_engines.inference_backends:build_torch_policy")

weight_syncers: Registry[Any] = Registry("weight syncer")
"""By ``weight_syncer.type``: classes derived from ``rlinf.workers.weight_syncer.WeightSyncer``."""
weight_syncers.register("bucket", "rlinf.workers.weight_syncer:BucketSyncer")
weight_syncers.register("patch", "rlinf.workers.patch_syncer:PatchSyncer")
