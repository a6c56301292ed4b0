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

    @property
    def num_devices(self) -> int:
        """Devices that one engine computes on."""
        return 1

    @property
    def routes_obstacle(self) -> str:
        """Why the engine cannot say which experts tokens went to, and what to change; empty if it can."""
        return f"rollout.rollout_backend={self.rollout_backend} does not say where tokens went. Choose hf or vllm"


@dataclass(frozen=True, kw_only=True)
class HFGenerationConfig(GenerationConfig):
    """``rollout_backend: hf``: transformers with continuous batching; runs everywhere, the reference for the others."""

    @property
    def routes_obstacle(self) -> str:
        """See ``GenerationConfig``: none."""
        return ""

    def required_packages(self) -> tuple[str, ...]:
        """Return the engine."""
        return ("transformers",)


@dataclass(frozen=True, kw_only=True)
class ServingConfig(GenerationConfig):
    """Keys that the serving engines share."""

    tensor_parallel_size: PositiveInt = 1
    """Devices that each layer is spread over."""
    pipeline_parallel_size: PositiveInt = 1
    """Stages that the layers are spread over; an engine takes tensor_parallel_size devices for each."""
    quantization: str | None = None
    """Precision of the engine's weights, for example fp8: the engine quantises what a weight sync brings. A method
    whose weights are quantised in the checkpoint cannot take them, and is refused."""
    gpu_memory_utilization: Fraction = 0.5
    """Share of the device's memory for weights and key-value cache."""
    cpu_cache_bytes: PositiveInt = 256 << 20
    """Key-value cache where the engine runs on the CPU."""
    enforce_eager: bool = False
    """Run without captured graphs and compilation: starts faster, generates slower, can be debugged."""

    @property
    def num_devices(self) -> int:
        """Devices that one engine computes on: all those of its process."""
        return self.tensor_parallel_size * self.pipeline_parallel_size

    @property
    def speculates(self) -> bool:
        """Whether tokens are drafted and then verified (speculative decoding)."""
        return False


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
    speculative_config: dict[str, Any] = field(default_factory=dict)
    """vLLM's own keys of speculative decoding: method, model, num_speculative_tokens and so on; empty does without. The
    drafting model keeps the weights of its checkpoint."""


@dataclass(frozen=True, kw_only=True)
class VLLMGenerationConfig(ServingConfig):
    """``rollout_backend: vllm``."""

    vllm: VLLMOptionsConfig = field(default_factory=VLLMOptionsConfig)
    """Keys of vLLM alone."""

    @property
    def speculates(self) -> bool:
        """Whether tokens are drafted and then verified (speculative decoding)."""
        return bool(self.vllm.speculative_config)

    @property
    def routes_obstacle(self) -> str:
        """See ``GenerationConfig``: what vLLM does not combine with ``enable_return_routed_experts``."""
        if self.pipeline_parallel_size > 1:
            return "vLLM does not collect the routes of several stages. Set rollout.pipeline_parallel_size=1"
        if not self.vllm.enable_prefix_caching:
            return "vLLM keeps routes with cached prompts. Set rollout.vllm.enable_prefix_caching=true"
        if self.speculates:
            return "drafted tokens have other routes. Remove rollout.vllm.speculative_config"
        return ""

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
    speculative_algorithm: str | None = None
    """Speculative decoding: EAGLE, EAGLE3, NGRAM and so on; null does without. The drafting model keeps the weights of
    its checkpoint. Seeds then repeat nothing: SGLang samples what it verifies from a stream of its own."""
    speculative_draft_model_path: str | None = None
    """Folder of the drafting model."""
    speculative_num_steps: PositiveInt | None = None
    """Steps of drafting; null lets SGLang choose, as below."""
    speculative_eagle_topk: PositiveInt | None = None
    """Tokens drafted next to each other in a step."""
    speculative_num_draft_tokens: PositiveInt | None = None
    """Drafted tokens that one pass verifies."""


@dataclass(frozen=True, kw_only=True)
class SGLangGenerationConfig(ServingConfig):
    """``rollout_backend: sglang``."""

    sglang: SGLangOptionsConfig = field(default_factory=SGLangOptionsConfig)
    """Keys of SGLang alone."""

    @property
    def speculates(self) -> bool:
        """Whether tokens are drafted and then verified (speculative decoding)."""
        return self.sglang.speculative_algorithm is not None

    def required_packages(self) -> tuple[str, ...]:
        """Return the engine."""
        return ("sglang",)


@dataclass(frozen=True, kw_only=True)
class EngineServersConfig(ConfigSection):
    """``rollout.server``: engine servers, which ``rlinf serve`` runs, and how long to wait for them."""

    base_urls: list[str] = field(default_factory=list)
    """Where they are: http://host:port. Requests are spread over them; each gets every update of the weights."""
    timeout_seconds: PositiveFloat = 60.0
    """A server that does not say within this time how it is counts as dead; its requests go to another."""
    health_interval_seconds: PositiveFloat = 5.0
    """Time between two looks at a server's health."""
    start_timeout_seconds: PositiveFloat = 600.0
    """Time until all servers are there, and have loaded their model."""


@dataclass(frozen=True, kw_only=True)
class ServerGenerationConfig(GenerationConfig):
    """``rollout_backend: server``: engines that other processes hold, perhaps on other machines, reached over HTTP."""

    server: EngineServersConfig = field(default_factory=EngineServersConfig)
    """Which servers."""

    @property
    def num_devices(self) -> int:
        """Servers: how many devices each computes on is not known here."""
        return max(1, len(self.server.base_urls))

    def required_packages(self) -> tuple[str, ...]:
        """Return what speaks HTTP."""
        return ("aiohttp",)


generation_engines: Registry[Any] = Registry("generation engine", config=GenerationConfig)
"""By ``rollout.rollout_backend`` of language models; ``GenerationEngine`` is the contract."""
generation_engines.register("hf", "rlinf.hybrid_engines.generation.hf:HFEngine", config=HFGenerationConfig)
generation_engines.register(
    "server", "rlinf.hybrid_engines.serving.server_engine:ServerEngine", config=ServerGenerationConfig
)
generation_engines.register(
    "sglang", "rlinf.hybrid_engines.generation.sglang:SGLangEngine", config=SGLangGenerationConfig
)
generation_engines.register("vllm", "rlinf.hybrid_engines.generation.vllm:VLLMEngine", config=VLLMGenerationConfig)
