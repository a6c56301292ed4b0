"""The ``vllm`` engine: vLLM in this process, stepped by our thread, so that updates never wait for it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlinf.config.schema.base import Precision
from rlinf.config.schema.generation import VLLMGenerationConfig
from rlinf.data.messages.generation import GenerationRequest, RouteArray
from rlinf.errors import EngineError, WeightSyncError
from rlinf.hybrid_engines.generation.in_process_engine import InProcessEngine
from rlinf.hybrid_engines.generation.model_runner import ModelRunner, RunnerLimits, SampledToken
from rlinf.hybrid_engines.generation.requests import check_speculation
from rlinf.hybrid_engines.generation.sampler import TokenFilter
from rlinf.hybrid_engines.generation.token_sequence import TokenSequence, sampling_seed
from rlinf.hybrid_engines.generation.weight_shards import join_shards
from rlinf.hybrid_engines.inference_backends import DTYPES
from rlinf.hybrid_engines.weights.bucket import Manifest
from rlinf.models.language.expert_routing import ExpertSizes
from rlinf.utils.optional import require

_WORKER_MODULE = "rlinf.hybrid_engines.generation.vllm_worker"

_ENVIRONMENT = {
    # The engine is stepped here, not in a process of its own.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # The newer runner calls logits processors of another kind.
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}
_ROUTES_ENVIRONMENT = {
    # The older runner returns no routes.
    "VLLM_USE_V2_MODEL_RUNNER": "1",
}
_ROUTES_KEY = "enable_return_routed_experts"
_CPU_ENVIRONMENT = {
    # Threads are bound and counted by the parent process; vLLM would claim all cores.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # Small helpers of the sampler are compiled even with enforce_eager, which takes a minute and a C++ compiler.
    "TORCHDYNAMO_DISABLE": "1",
}
"""Set before vLLM is imported, where the user has not set them."""

_CPU_BLOCK_TOKENS = 32
"""Tokens of a block of the cache; the CPU's attention wants a multiple of 32."""

_MIN_TEMPERATURE = 0.01
"""vLLM silently raises lower temperatures to this."""


class VLLMModelRunner(ModelRunner):
    """vLLM's engine, whose scheduler batches prompts and decoding.

    Args:
        cfg: The ``rollout`` section.
        model_path: Folder with the model.
        device: Where to compute; of accelerators the first one that this process sees.
        precision: Of weights and cache.
        seed: Of requests that have none of their own.
        max_context_tokens: Most tokens of a prompt and its response together.
        returns_routes: Whether to ask for the experts that tokens go to.
    """

    def __init__(
        self,
        cfg: VLLMGenerationConfig,
        *,
        model_path: Path,
        device: torch.device,
        precision: Precision,
        seed: int,
        max_context_tokens: int,
        returns_routes: bool = False,
    ) -> None:
        self._cfg, self._returns_routes = cfg, returns_routes
        self._experts: ExpertSizes | None = None
        self.takes_partial_updates = cfg.quantization is None
        self._device = device
        self._dtype = DTYPES[precision]
        self._arguments = engine_arguments(
            cfg,
            model_path=model_path,
            device=device,
            precision=precision,
            seed=seed,
            max_context_tokens=max_context_tokens,
            returns_routes=returns_routes,
        )
        self._vllm: Any = None
        self._engine: Any = None
        self._is_partial = False
        self._sequences: dict[int, TokenSequence] = {}
        # Tokens that a sequence had when it was admitted: vLLM counts from there.
        self._num_before: dict[int, int] = {}
        self._offsets: dict[tuple[int, int], tuple[float, float]] = {}

    def load(self) -> RunnerLimits:
        """Load the model; see ``ModelRunner``.

        Raises:
            EngineError: vLLM would keep weights where updates do not reach them, or returns no routes.
        """
        prepare_environment(self._device, returns_routes=self._returns_routes)
        if self._device.type == "cpu" and self._dtype != torch.float32 and torch.cpu._is_amx_tile_supported():
            raise EngineError(
                "rollout_backend=vllm on a CPU with AMX packs weights of 16 bits into copies that no update reaches; "
                "write precision: fp32."
            )
        self._vllm = require("vllm", needed_by="rollout_backend=vllm")
        self._check_quantization()
        if self._returns_routes:
            self._check_routes()
        self._engine = self._vllm.LLMEngine.from_engine_args(self._vllm.EngineArgs(**self._arguments))
        if self._returns_routes:
            self._experts = self._expert_sizes()
        if self._cfg.pipeline_parallel_size > 1:
            self._call("rlinf_make_buffers")
        return RunnerLimits(
            vocab_size=int(self._engine.model_config.get_vocab_size()),
            max_running=self._cfg.max_running_requests,
        )

    def _check_routes(self) -> None:
        """Refuse versions of vLLM, and runners, that return no routes.

        Raises:
            EngineError: This is one of them.
        """
        if self._device.type == "cpu":
            raise EngineError(
                "actor.routing_replay=rollout: vLLM returns routes from GPUs alone, as its second runner needs Triton. "
                "Choose rollout_backend: hf."
            )
        known = {field.name for field in dataclasses.fields(self._vllm.EngineArgs)}
        runner = os.environ["VLLM_USE_V2_MODEL_RUNNER"]
        if _ROUTES_KEY not in known or runner != "1":
            raise EngineError(
                f"actor.routing_replay=rollout needs {_ROUTES_KEY}, which vLLM has from 0.32 on and in its second "
                f"runner: received {self._vllm.__version__} and VLLM_USE_V2_MODEL_RUNNER={runner}. Update vLLM, unset "
                "the variable, or choose rollout_backend: hf."
            )

    def _expert_sizes(self) -> ExpertSizes:
        config = self._engine.model_config.hf_config
        sizes = ExpertSizes.of(config)
        if sizes is None:
            raise EngineError(
                f"actor.routing_replay=rollout: '{self._arguments['model']}' is a {config.model_type}; the routes that "
                "are replayed are those of qwen3_moe. Remove the key."
            )
        return sizes

    def _check_quantization(self) -> None:
        """Refuse methods that vLLM does not apply to weights of full precision.

        Raises:
            EngineError: ``rollout.quantization`` is one of them.
        """
        chosen = self._cfg.quantization
        known = require("vllm.config.quantization", needed_by="rollout.quantization")._ONLINE_SHORTHANDS
        if chosen is not None and chosen not in known:
            raise EngineError(
                f"rollout.quantization: received {chosen}, whose weights vLLM takes from a quantised checkpoint; a "
                f"weight sync brings them in full precision. Allowed: {', '.join(sorted(known))}."
            )

    def check(self, request: GenerationRequest) -> None:
        """Let vLLM validate the parameters; see ``ModelRunner``.

        Raises:
            EngineError: It refuses them, or would change them.
        """
        temperature = request.params.temperature
        if 0 < temperature < _MIN_TEMPERATURE:
            raise EngineError(
                f"Request '{request.request_id}': sampling field 'temperature' is {temperature}; allowed with "
                f"rollout_backend=vllm: 0, or a number from {_MIN_TEMPERATURE}."
            )
        if self._cfg.speculates:
            check_speculation(request, backend="vllm")
        if self._returns_routes and request.params.truncates:
            raise EngineError(
                f"Request '{request.request_id}': top_k, top_p, min_p and min_new_tokens cannot be combined with "
                "actor.routing_replay=rollout on rollout_backend=vllm, whose second runner would report other "
                "log-probabilities. Leave them at their defaults, or choose rollout_backend: hf."
            )
        try:
            self._vllm.SamplingParams(
                temperature=temperature, repetition_penalty=request.params.repetition_penalty
            ).verify(self._engine.model_config, None, None, None)
        except ValueError as error:
            raise EngineError(f"Request '{request.request_id}': vLLM refuses its sampling fields: {error}") from error

    def add(self, sequences: Sequence[TokenSequence]) -> None:
        """Admit sequences; see ``ModelRunner``."""
        for sequence in sequences:
            self._sequences[sequence.key] = sequence
            self._num_before[sequence.key] = len(sequence.token_ids)
            prompt = {"prompt_token_ids": sequence.context}
            # Straight to the engine's core: the layers around it build texts and objects for every token, which costs
            # more than a tenth of a small model's step.
            request = self._engine.input_processor.process_inputs(
                str(sequence.key), prompt, self._sampling_params(sequence), self._engine.get_supported_tasks()
            )
            self._engine.engine_core.add_request(request)

    def _sampling_params(self, sequence: TokenSequence) -> Any:
        params, num_before = sequence.params, len(sequence.token_ids)
        # Greedy requests that leave tokens out go the way of random ones, as only there can tokens be left out.
        greedy = params.temperature == 0
        return self._vllm.SamplingParams(
            temperature=1.0 if greedy and params.truncates else params.temperature,
            repetition_penalty=params.repetition_penalty,
            max_tokens=sequence.limit - num_before,
            stop_token_ids=sorted(sequence.end_ids),
            # ``end_ids`` holds the model's own end tokens, too.
            ignore_eos=True,
            # vLLM starts a stream of its own for each request, also for one that goes on.
            seed=None if params.seed is None else sampling_seed(sequence.seed, num_before),
            logprobs=0,
            detokenize=False,
            extra_args={"rlinf": self._filter_fields(sequence)} if params.truncates else None,
        )

    def _filter_fields(self, sequence: TokenSequence) -> dict[str, object]:
        params = sequence.params
        token_filter = TokenFilter.of(params, suppressed=tuple(sequence.end_ids))
        return {
            "key": sequence.key,
            "top_k": token_filter.top_k,
            "top_p": token_filter.top_p,
            "min_p": token_filter.min_p,
            "suppressed": token_filter.suppressed,
            "num_suppressed": params.min_new_tokens - len(sequence.token_ids),
            "greedy": params.temperature == 0,
        }

    def step(self) -> Iterable[SampledToken]:
        """Let vLLM take a step; see ``ModelRunner``."""
        outputs = self._engine.engine_core.get_output().outputs
        if any(sequence.params.truncates for sequence in self._sequences.values()):
            for offsets in self._call("rlinf_take_offsets"):  # the last stage alone has some
                self._offsets.update(offsets)
        sampled = []
        for output in outputs:
            key = int(output.request_id)
            sequence = self._sequences.get(key)
            if sequence is None:
                continue
            index = len(sequence.token_ids) - self._num_before[key]
            if output.finish_reason is not None:
                del self._sequences[key], self._num_before[key]
            if not output.new_token_ids:
                continue
            # One column, the sampled token's, as no other was requested.
            logprobs = output.new_logprobs.logprobs[:, 0].tolist()
            routes = None if self._experts is None else _numbered(output.routed_experts, self._experts)
            for offset, (token_id, logprob) in enumerate(zip(output.new_token_ids, logprobs, strict=True)):
                own, full = self._offsets.pop((key, index + offset), (0.0, 0.0)) if self._offsets else (0.0, 0.0)
                # With routes there is one token at a time: they are those of all before it.
                sampled.append(SampledToken(key, token_id, logprob + own, logprob + full, routes))
        return sampled

    def remove(self, keys: Sequence[int]) -> None:
        """Forget sequences; see ``ModelRunner``."""
        running = [key for key in keys if key in self._sequences]
        for key in running:
            del self._sequences[key], self._num_before[key]
        if running:
            self._engine.engine_core.abort_requests([str(key) for key in running])
        gone = set(keys)
        self._offsets = {name: value for name, value in self._offsets.items() if name[0] not in gone}

    def begin_update(self, manifest: Manifest) -> None:
        """Get ready; see ``ModelRunner``."""
        self._is_partial = manifest.is_partial
        self._call("rlinf_begin_update")

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Have vLLM's loader put tensors where it keeps them; see ``ModelRunner``.

        Raises:
            WeightSyncError: The loader refuses one.
        """
        named = list(weights)
        try:
            self._call("rlinf_load_weights", named)
        except (KeyError, ValueError, AssertionError, RuntimeError) as error:  # the last: in another process
            names = ", ".join(name for name, _ in named)
            raise WeightSyncError(f"vLLM's loader refuses one of the weights {names}: {error!r}") from error

    def commit(self) -> None:
        """Drop cached prompts; see ``ModelRunner``.

        Raises:
            WeightSyncError: A parameter has not been loaded.
            EngineError: The cache could not be dropped.
        """
        found = [] if self._is_partial else self._call("rlinf_missing_weights")
        missing = sorted({name for names in found for name in names})
        if missing:
            raise WeightSyncError(f"Weights do not match the model: nothing was sent for {', '.join(missing)}.")
        self._call("rlinf_end_update")
        if not self._engine.reset_prefix_cache():
            raise EngineError("vLLM kept its cache, which belongs to the old weights, as requests still use it.")

    def sleep(self) -> bool:
        """Discard weights and cache where vLLM can; see ``ModelRunner``."""
        if not self._arguments["enable_sleep_mode"]:
            return True
        # Level 2 keeps no copy of the weights on the host: they are sent anew before anything is generated.
        self._engine.sleep(level=2)
        return False

    def wake(self) -> None:
        """Take the memory again; see ``ModelRunner``."""
        if self._arguments["enable_sleep_mode"]:
            self._engine.wake_up()

    def read_weights(self, names: Sequence[str]) -> dict[str, torch.Tensor] | None:
        """Return copies of weights, joined where they are spread over several devices; None if they are quantised."""
        if self._cfg.quantization is not None:
            return None
        found = self._call("rlinf_read_weights", list(names))
        return {name: join_shards([shards[name] for shards in found if name in shards]) for name in names}

    def close(self) -> None:
        """End vLLM's engine; see ``ModelRunner``."""
        if self._engine is not None:
            self._engine.engine_core.shutdown()
            self._engine = None

    def _call(self, method: str, *args: object) -> Any:
        """Call a method of ``WeightExtension`` on all workers, and return what each returns."""
        return self._engine.collective_rpc(method, args=args)


def _numbered(experts: np.ndarray[Any, Any] | None, sizes: ExpertSizes) -> RouteArray | None:
    """Return vLLM's numbers of experts, [n, layers, chosen] from 0, as routes."""
    dtype = sizes.no_routes(0).numpy().dtype
    return None if experts is None else experts.astype(dtype) + dtype.type(1)


def prepare_environment(device: torch.device, *, returns_routes: bool = False) -> None:
    """Set what vLLM reads from the environment, before it is imported.

    Args:
        device: Where to compute.
        returns_routes: Whether to ask for the experts that tokens go to.
    """
    settings = _ENVIRONMENT | (_CPU_ENVIRONMENT if device.type == "cpu" else {})
    settings |= _ROUTES_ENVIRONMENT if returns_routes else {}
    for name, value in settings.items():
        os.environ.setdefault(name, value)


def engine_arguments(
    cfg: VLLMGenerationConfig,
    *,
    model_path: Path,
    device: torch.device,
    precision: Precision,
    seed: int,
    max_context_tokens: int,
    returns_routes: bool = False,
) -> dict[str, Any]:
    """Return the arguments of vLLM's engine.

    Args:
        cfg: The ``rollout`` section.
        model_path: Folder with the model.
        device: Where to compute.
        precision: Of weights and cache.
        seed: Of requests that have none of their own.
        max_context_tokens: Most tokens of a prompt and its response together.
        returns_routes: Whether to ask for the experts that tokens go to.

    Raises:
        EngineError: Prompts are to be cut on a CPU.
    """
    on_cpu = device.type == "cpu"
    cuts_prompts = not on_cpu if cfg.vllm.enable_chunked_prefill is None else cfg.vllm.enable_chunked_prefill
    if on_cpu and cuts_prompts:
        raise EngineError(
            "rollout.vllm.enable_chunked_prefill: received true on a CPU, where vLLM fails at the first prompt that it "
            "cuts, as requests have seeds. Leave the key out."
        )
    arguments: dict[str, Any] = {
        "model": str(model_path),
        "skip_tokenizer_init": True,
        "dtype": str(DTYPES[precision]).removeprefix("torch."),
        "seed": seed,
        "max_model_len": max_context_tokens,
        "max_num_seqs": cfg.max_running_requests,
        "tensor_parallel_size": cfg.tensor_parallel_size,
        "pipeline_parallel_size": cfg.pipeline_parallel_size,
        "distributed_executor_backend": "uni" if cfg.num_devices == 1 else "mp",
        "enforce_eager": cfg.enforce_eager or on_cpu,
        "enable_prefix_caching": cfg.vllm.enable_prefix_caching,
        "enable_chunked_prefill": cuts_prompts,
        "attention_backend": cfg.vllm.attention_backend,
        "logprobs_mode": "processed_logprobs",
        "worker_extension_cls": f"{_WORKER_MODULE}.WeightExtension",
        # vLLM refuses them next to speculation, and its second runner does not call them; see ``check``.
        "logits_processors": [] if cfg.speculates or returns_routes else [f"{_WORKER_MODULE}:TokenFilterProcessor"],
        "enable_sleep_mode": cfg.enable_offload and not on_cpu,
        "disable_log_stats": True,
    }
    if returns_routes:
        arguments[_ROUTES_KEY] = True
    if cfg.quantization is not None:
        arguments["quantization"] = cfg.quantization
    if cfg.speculates:
        arguments["speculative_config"] = dict(cfg.vllm.speculative_config)
    if cfg.vllm.max_num_batched_tokens is not None:
        arguments["max_num_batched_tokens"] = cfg.vllm.max_num_batched_tokens
    if on_cpu:
        arguments["block_size"] = _CPU_BLOCK_TOKENS
        arguments["kv_cache_memory_bytes"] = cfg.cpu_cache_bytes
    else:
        arguments["gpu_memory_utilization"] = cfg.gpu_memory_utilization
    return arguments


class VLLMEngine(InProcessEngine):
    """Generates with vLLM in this process.

    Args:
        cfg: The ``rollout`` section.
        model_path: Folder with the model and its tokenizer.
        device: Where to compute.
        precision: Of weights and cache.
        seed: Of requests that have none of their own.
        max_context_tokens: Most tokens of a prompt and its response together.
        returns_routes: Whether completions have ``routes``.
    """

    def __init__(
        self,
        cfg: VLLMGenerationConfig,
        *,
        model_path: str | Path,
        device: torch.device,
        precision: Precision,
        seed: int,
        max_context_tokens: int,
        returns_routes: bool = False,
    ) -> None:
        model_runner = VLLMModelRunner(
            cfg,
            model_path=Path(model_path),
            device=device,
            precision=precision,
            seed=seed,
            max_context_tokens=max_context_tokens,
            returns_routes=returns_routes,
        )
        super().__init__(
            model_runner, name="vllm", model_path=model_path, seed=seed, max_context_tokens=max_context_tokens
        )
