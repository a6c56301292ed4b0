"""The ``sglang`` engine: SGLang's engine, whose scheduler runs in a process of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch

from rlinf.config.schema.base import Precision
from rlinf.config.schema.generation import SGLangGenerationConfig, SGLangOptionsConfig
from rlinf.data.messages.generation import GenerationRequest
from rlinf.errors import EngineError, WeightSyncError
from rlinf.hybrid_engines.generation.in_process_engine import InProcessEngine
from rlinf.hybrid_engines.generation.model_folder import read_model_config, read_weight_names, read_weight_shapes
from rlinf.hybrid_engines.generation.model_runner import ModelRunner, RunnerLimits, SampledToken
from rlinf.hybrid_engines.generation.requests import check_speculation
from rlinf.hybrid_engines.generation.token_sequence import TokenSequence
from rlinf.hybrid_engines.inference_backends import DTYPES
from rlinf.hybrid_engines.weights.bucket import Manifest
from rlinf.utils.optional import install_command, require

_MIN_TEMPERATURE = 1e-6
"""SGLang treats lower temperatures as 0."""

_SAMPLED = "rlinf_sampled"

_COPY_OUT = "rlinf.hybrid_engines.generation.sglang_worker.copy_weights_out"

_RESERVED_TOKENS = 2
"""Tokens of the context that SGLang keeps free."""


class SGLangModelRunner(ModelRunner):
    """SGLang's engine, on an event loop that runs during calls of this model runner.

    Its scheduler generates on its own; the next step returns what has arrived meanwhile.

    Args:
        cfg: The ``rollout`` section.
        model_path: Folder with the model.
        device: Where to compute; of accelerators the first one that this process sees.
        precision: Of weights and cache.
        seed: Of requests that have none of their own.
        max_context_tokens: Most tokens of a prompt and its response together.
    """

    runs_ahead: ClassVar[bool] = True

    def __init__(
        self,
        cfg: SGLangGenerationConfig,
        *,
        model_path: Path,
        device: torch.device,
        precision: Precision,
        seed: int,
        max_context_tokens: int,
    ) -> None:
        self._cfg = cfg
        self.takes_partial_updates = cfg.quantization is None
        self._device = device
        self._arguments = engine_arguments(
            cfg,
            model_path=model_path,
            device=device,
            precision=precision,
            seed=seed,
            max_context_tokens=max_context_tokens,
        )
        self._engine: Any = None
        self._loop = asyncio.new_event_loop()
        self._arrived: list[SampledToken] = []
        self._something = asyncio.Event()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._processor = ""
        self._updating = False
        self._model_path, self._dtype = model_path, DTYPES[precision]
        self._weight_names = read_weight_names(model_path)

    def load(self) -> RunnerLimits:
        """Start SGLang and its processes; see ``ModelRunner``."""
        asyncio.set_event_loop(self._loop)
        # A context may then be longer than the model's, by the reserved tokens that nothing ever fills.
        os.environ.setdefault("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", "1")
        if self._device.type == "cpu":
            # Read when SGLang is imported, here and in its processes.
            os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")
            if self._cfg.num_devices > 1:
                # SGLang alone gives each process a NUMA node of its own, and ends where there are fewer.
                os.environ.setdefault("SGLANG_CPU_OMP_THREADS_BIND", cores_of_processes(self._cfg.num_devices))
        sglang = require("sglang", needed_by="rollout_backend=sglang")
        self._engine = sglang.Engine(**self._arguments)
        worker = require(
            "rlinf.hybrid_engines.generation.sglang_worker",
            install=install_command("sglang"),
            needed_by="rollout_backend=sglang",
        )
        self._processor = worker.SamplerProcessor.to_str()
        model_config = self._engine.tokenizer_manager.model_config
        return RunnerLimits(vocab_size=int(model_config.vocab_size), max_running=self._cfg.max_running_requests)

    def check(self, request: GenerationRequest) -> None:
        """Refuse what SGLang would change; see ``ModelRunner``.

        Raises:
            EngineError: The temperature is lower than it takes.
        """
        temperature = request.params.temperature
        if 0 < temperature < _MIN_TEMPERATURE:
            raise EngineError(
                f"Request '{request.request_id}': sampling field 'temperature' is {temperature}; allowed with "
                f"rollout_backend=sglang: 0, or a number from {_MIN_TEMPERATURE}."
            )
        if self._cfg.speculates:
            check_speculation(request, backend="sglang")
            if request.params.repetition_penalty != 1:
                raise EngineError(
                    f"Request '{request.request_id}': sampling field 'repetition_penalty' is "
                    f"{request.params.repetition_penalty}; allowed with rollout.sglang.speculative_algorithm: 1."
                )

    def add(self, sequences: Sequence[TokenSequence]) -> None:
        """Send sequences to SGLang; see ``ModelRunner``."""
        for sequence in sequences:
            self._tasks[sequence.key] = self._loop.create_task(self._follow(sequence))

    async def _follow(self, sequence: TokenSequence) -> None:
        """Receive a sequence's tokens until SGLang ends it."""
        params = sequence.params
        # Drafted tokens are verified by SGLang's own sampler, which knows no seeds.
        own = not self._cfg.speculates and (
            params.truncates or params.seed is not None or params.repetition_penalty != 1
        )
        stream = await self._engine.async_generate(
            input_ids=sequence.context,
            sampling_params=_sampling_params(sequence, own=own),
            rid=str(sequence.key),
            return_logprob=True,
            stream=True,
            custom_logit_processor=self._processor if own else None,
        )
        num_before, num_taken = len(sequence.token_ids), 0
        reason: dict[str, Any] | None = None
        sampled: list[list[Any]] = []
        async for output in stream:
            meta = output["meta_info"]
            sampled.extend(meta.get(_SAMPLED) or [])
            for value, token_id, _ in meta.get("output_token_logprobs") or []:
                logprob, full = sampled[num_taken][1:] if own else (value, value)
                num_taken += 1
                self._arrived.append(SampledToken(sequence.key, int(token_id), float(logprob), float(full)))
            self._something.set()
            reason = meta.get("finish_reason")
        if reason is None or (reason["type"] == "length" and num_taken < sequence.limit - num_before):
            raise EngineError(f"SGLang ended a sequence after {num_taken} tokens, for the reason {reason}.")

    def step(self) -> Iterable[SampledToken]:
        """Wait until something arrives; see ``ModelRunner``."""
        self._run(self._wait())
        for key in [key for key, task in self._tasks.items() if task.done()]:
            self._tasks.pop(key).result()
        arrived, self._arrived = self._arrived, []
        return arrived

    async def _wait(self) -> None:
        if not self._arrived:
            if not self._tasks:
                raise EngineError("SGLang has ended every sequence, and the engine expects more tokens.")
            self._something.clear()
            waiting = asyncio.ensure_future(self._something.wait())
            await asyncio.wait([waiting, *self._tasks.values()], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()

    def remove(self, keys: Sequence[int]) -> None:
        """Have SGLang forget sequences, and wait until it has; see ``ModelRunner``."""
        tasks = [self._tasks.pop(key) for key in keys if key in self._tasks]
        if tasks:
            # One that has not begun yet is unknown to SGLang, and could not be aborted.
            self._run(asyncio.sleep(0))
        for key in keys:
            self._engine.tokenizer_manager.abort_request(rid=str(key))
        if tasks:
            self._run(asyncio.wait(tasks))
        gone = set(keys)
        self._arrived = [token for token in self._arrived if token.key not in gone]

    def begin_update(self, manifest: Manifest) -> None:
        """Open SGLang's update; see ``ModelRunner``.

        Raises:
            WeightSyncError: The manifest lacks weights that the model's folder has.
        """
        missing = self._weight_names - {entry.name for entry in manifest.entries}
        if missing and not manifest.is_partial:
            raise WeightSyncError(f"Weights do not match the model: missing {sorted(missing)}.")
        if not self._updating:
            self._call(self._engine.tokenizer_manager.begin_weight_update, _io("BeginWeightUpdateReqInput")())
            self._updating = True

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Have SGLang's loader put tensors where it keeps them; see ``ModelRunner``.

        Raises:
            WeightSyncError: SGLang refuses them.
        """
        serialized = self._engine._serialize_tensors_per_rank([(name, t.clone()) for name, t in weights], None)
        request = _io("UpdateWeightsFromTensorReqInput")(serialized_named_tensors=serialized, flush_cache=False)
        self._call(self._engine.tokenizer_manager.update_weights_from_tensor, request)

    def commit(self) -> None:
        """Close SGLang's update and drop its cache; see ``ModelRunner``.

        Raises:
            WeightSyncError: SGLang refuses.
            EngineError: The cache could not be dropped.
        """
        self._call(self._engine.tokenizer_manager.end_weight_update, _io("EndWeightUpdateReqInput")())
        self._updating = False
        if not self._run(self._engine.tokenizer_manager.flush_cache()).success:
            raise EngineError("SGLang kept its cache, which belongs to the old weights, as requests still use it.")

    def _call(self, method: Any, request: object) -> None:
        success, message = self._run(method(request, None))[:2]
        if not success:
            raise WeightSyncError(f"SGLang refuses the weights: {message}")

    def sleep(self) -> bool:
        """Give memory back where SGLang can; see ``ModelRunner``."""
        if not self._arguments["enable_memory_saver"]:
            return True
        self._engine.release_memory_occupation()
        return False

    def wake(self) -> None:
        """Take the memory again; see ``ModelRunner``."""
        if self._arguments["enable_memory_saver"]:
            self._engine.resume_memory_occupation()

    def read_weights(self, names: Sequence[str]) -> dict[str, torch.Tensor] | None:
        """Return copies of weights; None where they are spread over pipeline stages, quantised or not found."""
        if self._cfg.pipeline_parallel_size > 1 or self._cfg.quantization is not None:
            return None
        shapes = read_weight_shapes(self._model_path)
        if not set(names) <= shapes.keys():
            return None
        # SGLang's loader fills these: the memory is shared with its process.
        targets = [
            (name, torch.full(shapes[name], torch.nan, dtype=self._dtype, device=self._device)) for name in names
        ]
        manager = self._engine.tokenizer_manager
        self._call(manager.begin_weight_update, _io("BeginWeightUpdateReqInput")())
        serialized = self._engine._serialize_tensors_per_rank(targets, None)
        request = _io("UpdateWeightsFromTensorReqInput")(
            serialized_named_tensors=serialized, load_format=_COPY_OUT, flush_cache=False
        )
        self._call(manager.update_weights_from_tensor, request)
        self._call(manager.end_weight_update, _io("EndWeightUpdateReqInput")())
        weights = {name: tensor.to("cpu", copy=True) for name, tensor in targets}
        return None if any(bool(tensor.isnan().any()) for tensor in weights.values()) else weights

    def close(self) -> None:
        """End SGLang's processes; see ``ModelRunner``."""
        if self._engine is not None:
            self._engine.shutdown()
            self._engine = None

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(coroutine)


def _io(name: str) -> Any:
    return getattr(require("sglang.srt.managers.io_struct", needed_by="rollout_backend=sglang"), name)


def _sampling_params(sequence: TokenSequence, *, own: bool) -> dict[str, Any]:
    """Return SGLang's parameters.

    Args:
        sequence: To be admitted.
        own: Whether ``SamplerProcessor`` samples.
    """
    params = sequence.params
    common = {
        "max_new_tokens": sequence.limit - len(sequence.token_ids),
        "stop_token_ids": sorted(sequence.end_ids),
        # ``end_ids`` holds the model's own end tokens, too.
        "ignore_eos": True,
        "no_stop_trim": True,
    }
    if not own:
        return {**common, "temperature": params.temperature}
    sampling = {
        "temperature": params.temperature,
        "top_k": params.top_k,
        "top_p": params.top_p,
        "min_p": params.min_p,
        "repetition_penalty": params.repetition_penalty,
        "min_new_tokens": params.min_new_tokens,
        "end_ids": sorted(sequence.end_ids),
        "seed": sequence.seed,
        "num_before": len(sequence.token_ids),
    }
    return {**common, "temperature": 1.0, "custom_params": sampling}


def cores_of_processes(num_processes: int) -> str:
    """Return how this process's cores are shared out, as SGLang reads it: ``0,1|2,3``; several may share one."""
    cores = sorted(os.sched_getaffinity(0))
    shares = [cores[index::num_processes] or [cores[index % len(cores)]] for index in range(num_processes)]
    return "|".join(",".join(map(str, share)) for share in shares)


def engine_arguments(
    cfg: SGLangGenerationConfig,
    *,
    model_path: Path,
    device: torch.device,
    precision: Precision,
    seed: int,
    max_context_tokens: int,
) -> dict[str, Any]:
    """Return the arguments of SGLang's engine.

    Args:
        cfg: The ``rollout`` section.
        model_path: Folder with the model.
        device: Where to compute.
        precision: Of weights and cache.
        seed: Of requests that have none of their own.
        max_context_tokens: Most tokens of a prompt and its response together.
    """
    on_cpu = device.type == "cpu"
    arguments: dict[str, Any] = {
        "model_path": str(model_path),
        "skip_tokenizer_init": True,
        "dtype": str(DTYPES[precision]).removeprefix("torch."),
        "random_seed": seed,
        "context_length": max_context_tokens + _RESERVED_TOKENS,
        "max_running_requests": cfg.max_running_requests,
        "tp_size": cfg.tensor_parallel_size,
        "pp_size": cfg.pipeline_parallel_size,
        "device": device.type,
        # On the CPU too: what SGLang derives itself may be negative there.
        "mem_fraction_static": cfg.gpu_memory_utilization,
        "sampling_backend": "pytorch",
        "enable_custom_logit_processor": True,
        "custom_weight_loader": [_COPY_OUT],
        "incremental_streaming_output": True,
        # A prompt computed in pieces would sample, and count, a token after each.
        "chunked_prefill_size": -1,
        "enable_memory_saver": cfg.enable_offload and not on_cpu,
        "enable_torch_compile": cfg.sglang.use_torch_compile,
        "skip_server_warmup": True,
        "disable_cuda_graph": cfg.enforce_eager or on_cpu,
    }
    if cfg.quantization is not None:
        arguments["quantization"] = cfg.quantization
    arguments.update(_speculative_arguments(cfg.sglang))
    if cfg.sglang.attention_backend is not None or on_cpu:
        arguments["attention_backend"] = cfg.sglang.attention_backend or "torch_native"
    if on_cpu:
        arguments["max_total_tokens"] = cpu_cache_tokens(cfg, model_path=model_path, precision=precision)
    return arguments


def _speculative_arguments(cfg: SGLangOptionsConfig) -> dict[str, Any]:
    arguments = {
        "speculative_algorithm": cfg.speculative_algorithm,
        "speculative_draft_model_path": cfg.speculative_draft_model_path,
        "speculative_num_steps": cfg.speculative_num_steps,
        "speculative_eagle_topk": cfg.speculative_eagle_topk,
        "speculative_num_draft_tokens": cfg.speculative_num_draft_tokens,
    }
    return {name: value for name, value in arguments.items() if value is not None}


def cpu_cache_tokens(cfg: SGLangGenerationConfig, *, model_path: Path, precision: Precision) -> int:
    """Return how many tokens fit into ``cpu_cache_bytes``.

    Args:
        cfg: The ``rollout`` section.
        model_path: Folder with the model.
        precision: Of the cache.
    """
    model = read_model_config(model_path)
    head_dim = model.get("head_dim") or model["hidden_size"] // model["num_attention_heads"]
    num_heads = model.get("num_key_value_heads") or model["num_attention_heads"]
    token_bytes = 2 * model["num_hidden_layers"] * num_heads * head_dim * DTYPES[precision].itemsize
    return max(1, cfg.cpu_cache_bytes // int(token_bytes))


class SGLangEngine(InProcessEngine):
    """Generates with SGLang, whose scheduler runs in a process of its own.

    Args:
        cfg: The ``rollout`` section.
        model_path: Folder with the model and its tokenizer.
        device: Where to compute.
        precision: Of weights and cache.
        seed: Of requests that have none of their own.
        max_context_tokens: Most tokens of a prompt and its response together.
    """

    def __init__(
        self,
        cfg: SGLangGenerationConfig,
        *,
        model_path: str | Path,
        device: torch.device,
        precision: Precision,
        seed: int,
        max_context_tokens: int,
    ) -> None:
        model_runner = SGLangModelRunner(
            cfg,
            model_path=Path(model_path),
            device=device,
            precision=precision,
            seed=seed,
            max_context_tokens=max_context_tokens,
        )
        super().__init__(
            model_runner, name="sglang", model_path=model_path, seed=seed, max_context_tokens=max_context_tokens
        )
