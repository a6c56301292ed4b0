"""The ``rollout`` section of language models: one dataclass per generation engine; and how they sample."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rlinf.config.schema.base import (
    ConfigSection,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)
from rlinf.config.schema.model import RolloutModelConfig
from rlinf.registry import Registry


@dataclass(frozen=True, kw_only=True)
class SamplingConfig(ConfigSection):
    """``algorithm.sampling_params``: sampling in training; see ``rlinf.data.messages.generation.SamplingParams``."""

    temperature: NonNegativeFloat = 1.0
    """Divides the logits."""
    top_k: int = -1
    """Sample among this number of the most likely tokens; -1 samples among all."""
    top_p: Fraction = 1.0
    """Sample among the most likely tokens that together reach this probability."""
    min_p: Fraction = 0.0
    """Leave out tokens less likely than this times the most likely one."""
    repetition_penalty: PositiveFloat = 1.0
    """Divides positive and multiplies negative logits of tokens that have occurred."""
    max_new_tokens: PositiveInt = 1024
    """Most tokens of an answer."""
    min_new_tokens: NonNegativeInt = 0
    """Tokens before an answer may end."""
    stop: list[str] = field(default_factory=list)
    """Strings that end an answer."""
    stop_token_ids: list[NonNegativeInt] = field(default_factory=list)
    """Tokens that end a response in addition to the model's own."""


@dataclass(frozen=True, kw_only=True)
class GenerationConfig(ConfigSection):
    """Keys of every generation engine."""

    group_name: str = "RolloutGroup"
    """Name of the worker group."""
    rollout_backend: str
    """Registered generation engine."""
    model: RolloutModelConfig = field(default_factory=RolloutModelConfig)
    """Where the engine's model differs from the actor's."""
    max_running_requests: PositiveInt = 64
    """Answers that are generated at a time; further requests wait."""
    enable_offload: bool = False
    """Give back the memory of weights and caches while the actor trains on the same devices."""
    validate_weight: bool = False
    """After the first sync, compare the engine's weights with the actor's, and fail if they differ."""


@dataclass(frozen=True, kw_only=True)
class HFGenerationConfig(GenerationConfig):
    """``rollout_backend: hf``: transformers with continuous batching; runs everywhere, the reference for the others."""

    def required_packages(self) -> tuple[str, ...]:
        """Return the engine."""
        return ("transformers",)


@dataclass(frozen=True, kw_only=True)
class ServingConfig(GenerationConfig):
    """Keys that the serving engines share."""

    tensor_parallel_size: PositiveInt = 1
    """Devices that one engine is spread over: all those of its process."""
    gpu_memory_utilization: Fraction = 0.5
    """Share of the device's memory for weights and key-value cache."""
    cpu_cache_bytes: PositiveInt = 256 << 20
    """Key-value cache where the engine runs on the CPU."""
    enforce_eager: bool = False
    """Run without captured graphs and compilation: starts faster, generates slower, can be debugged."""


@dataclass(frozen=True, kw_only=True)
class VLLMOptionsConfig(ConfigSection):
    """``rollout.vllm``."""

    attention_backend: str | None = None
    """Attention kernels; null lets vLLM choose."""
    enable_prefix_caching: bool = True
    """Compute prompts that requests share once."""
    enable_chunked_prefill: bool | None = None
    """Cut long prompts, so that they do not hold up running answers; null does so on GPUs. On a CPU vLLM cannot: it
    fails when it has cut a prompt whose draws have a seed, as all have here."""
    max_num_batched_tokens: PositiveInt | None = None
    """Tokens of one forward pass; null lets vLLM choose."""


@dataclass(frozen=True, kw_only=True)
class VLLMGenerationConfig(ServingConfig):
    """``rollout_backend: vllm``."""

    vllm: VLLMOptionsConfig = field(default_factory=VLLMOptionsConfig)
    """Keys of vLLM alone."""

    def required_packages(self) -> tuple[str, ...]:
        """Return the engine."""
        return ("vllm",)


@dataclass(frozen=True, kw_only=True)
class SGLangOptionsConfig(ConfigSection):
    """``rollout.sglang``."""

    attention_backend: str | None = None
    """Attention kernels; null lets SGLang choose (``torch_native`` on the CPU)."""
    use_torch_compile: bool = False
    """Compile the model."""


@dataclass(frozen=True, kw_only=True)
class SGLangGenerationConfig(ServingConfig):
    """``rollout_backend: sglang``."""

    sglang: SGLangOptionsConfig = field(default_factory=SGLangOptionsConfig)
    """Keys of SGLang alone."""

    def required_packages(self) -> tuple[str, ...]:
        """Return the engine."""
        return ("sglang",)


generation_engines: Registry[Any] = Registry("generation engine", config=GenerationConfig)
"""By ``rollout.rollout_backend`` of language models; ``GenerationEngine`` is the contract."""
generation_engines.register("hf", "rlinf.hybrid_engines.generation.hf:HFEngine", config=HFGenerationConfig)
generation_engines.register(
    "sglang", "rlinf.hybrid_engines.generation.sglang:SGLangEngine", config=SGLangGenerationConfig
)
generation_engines.register("vllm", "rlinf.hybrid_engines.generation.vllm:VLLMEngine", config=VLLMGenerationConfig)
