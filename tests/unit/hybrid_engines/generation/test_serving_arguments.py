"""How the ``rollout`` section reaches the serving engines; needs neither of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.config.schema.generation import (
    SGLangGenerationConfig,
    SGLangOptionsConfig,
    VLLMGenerationConfig,
    VLLMOptionsConfig,
)
from rlinf.data.messages.generation import GenerationRequest, SamplingParams
from rlinf.errors import EngineError
from rlinf.hybrid_engines.generation import sglang, vllm

CPU, CUDA = torch.device("cpu"), torch.device("cuda:0")


def common(model: Path, device: torch.device) -> dict[str, object]:
    return {"model_path": model, "device": device, "precision": "bf16", "seed": 7, "max_context_tokens": 300}


def test_vllm_on_a_gpu_gets_every_key(tiny_model: Path) -> None:
    cfg = VLLMGenerationConfig(
        rollout_backend="vllm",
        max_running_requests=12,
        tensor_parallel_size=2,
        pipeline_parallel_size=3,
        quantization="fp8_per_tensor",
        gpu_memory_utilization=0.3,
        enforce_eager=True,
        enable_offload=True,
        vllm=VLLMOptionsConfig(
            attention_backend="FLASH_ATTN",
            enable_prefix_caching=False,
            enable_chunked_prefill=False,
            max_num_batched_tokens=900,
        ),
    )
    arguments = vllm.engine_arguments(cfg, **common(tiny_model, CUDA))  # type: ignore[arg-type]
    expected = {
        "model": str(tiny_model),
        "dtype": "bfloat16",
        "seed": 7,
        "max_model_len": 300,
        "max_num_seqs": 12,
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 3,
        "quantization": "fp8_per_tensor",
        "distributed_executor_backend": "mp",
        "gpu_memory_utilization": 0.3,
        "enforce_eager": True,
        "enable_sleep_mode": True,
        "attention_backend": "FLASH_ATTN",
        "enable_prefix_caching": False,
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": 900,
    }
    assert expected.items() <= arguments.items()
    assert "kv_cache_memory_bytes" not in arguments


def test_vllm_on_a_cpu_is_eager_and_has_a_cache_of_its_size(tiny_model: Path) -> None:
    cfg = VLLMGenerationConfig(rollout_backend="vllm", cpu_cache_bytes=1 << 20, enable_offload=True)
    arguments = vllm.engine_arguments(cfg, **common(tiny_model, CPU))  # type: ignore[arg-type]
    expected = {
        "kv_cache_memory_bytes": 1 << 20,
        "block_size": 32,
        "enforce_eager": True,
        "enable_sleep_mode": False,
        "enable_chunked_prefill": False,
        "distributed_executor_backend": "uni",
    }
    assert expected.items() <= arguments.items()
    assert "gpu_memory_utilization" not in arguments


@pytest.mark.parametrize(("chosen", "expected"), [(None, True), (True, True), (False, False)])
def test_vllm_cuts_prompts_on_a_gpu_unless_told_otherwise(tiny_model: Path, chosen: bool, expected: bool) -> None:
    cfg = VLLMGenerationConfig(rollout_backend="vllm", vllm=VLLMOptionsConfig(enable_chunked_prefill=chosen))
    arguments = vllm.engine_arguments(cfg, **common(tiny_model, CUDA))  # type: ignore[arg-type]
    assert arguments["enable_chunked_prefill"] is expected


def test_vllm_on_a_cpu_does_not_cut_prompts(tiny_model: Path) -> None:
    cfg = VLLMGenerationConfig(rollout_backend="vllm", vllm=VLLMOptionsConfig(enable_chunked_prefill=True))
    with pytest.raises(EngineError, match="enable_chunked_prefill: .* Leave the key out"):
        vllm.engine_arguments(cfg, **common(tiny_model, CPU))  # type: ignore[arg-type]


def test_what_the_user_has_set_for_vllm_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"VLLM_LOGGING_LEVEL": "DEBUG"})
    vllm.prepare_environment(CUDA)
    assert os.environ["VLLM_LOGGING_LEVEL"] == "DEBUG"
    assert os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert "TORCHDYNAMO_DISABLE" not in os.environ
    vllm.prepare_environment(CPU)
    assert os.environ["TORCHDYNAMO_DISABLE"] == "1"


def test_sglang_on_a_gpu_gets_every_key(tiny_model: Path) -> None:
    cfg = SGLangGenerationConfig(
        rollout_backend="sglang",
        max_running_requests=12,
        tensor_parallel_size=2,
        pipeline_parallel_size=3,
        quantization="fp8",
        gpu_memory_utilization=0.3,
        enforce_eager=True,
        enable_offload=True,
        sglang=SGLangOptionsConfig(
            attention_backend="triton",
            use_torch_compile=True,
            speculative_algorithm="EAGLE",
            speculative_draft_model_path="/drafts",
            speculative_num_steps=3,
        ),
    )
    arguments = sglang.engine_arguments(cfg, **common(tiny_model, CUDA))  # type: ignore[arg-type]
    expected = {
        "model_path": str(tiny_model),
        "dtype": "bfloat16",
        "random_seed": 7,
        "context_length": 302,
        "max_running_requests": 12,
        "tp_size": 2,
        "pp_size": 3,
        "quantization": "fp8",
        "speculative_algorithm": "EAGLE",
        "speculative_draft_model_path": "/drafts",
        "speculative_num_steps": 3,
        "device": "cuda",
        "mem_fraction_static": 0.3,
        "disable_cuda_graph": True,
        "enable_memory_saver": True,
        "attention_backend": "triton",
        "enable_torch_compile": True,
    }
    assert expected.items() <= arguments.items()
    assert "max_total_tokens" not in arguments


def test_sglang_on_a_cpu_holds_as_many_tokens_as_fit(tiny_model: Path) -> None:
    # 4 layers, 2 heads of 32, keys and values in bfloat16: 1,024 bytes a token.
    cfg = SGLangGenerationConfig(rollout_backend="sglang", cpu_cache_bytes=1 << 20)
    arguments = sglang.engine_arguments(cfg, **common(tiny_model, CPU))  # type: ignore[arg-type]
    assert arguments["max_total_tokens"] == 1024
    assert arguments["attention_backend"] == "torch_native"
    assert arguments["enable_memory_saver"] is False
    assert not any(name.startswith("speculative") or name == "quantization" for name in arguments)


def test_vllm_drafts_without_processors_of_ours(tiny_model: Path) -> None:
    drafts = {"method": "ngram", "num_speculative_tokens": 3}
    cfg = VLLMGenerationConfig(rollout_backend="vllm", vllm=VLLMOptionsConfig(speculative_config=drafts))
    arguments = vllm.engine_arguments(cfg, **common(tiny_model, CUDA))  # type: ignore[arg-type]
    assert (arguments["speculative_config"], arguments["logits_processors"]) == (drafts, [])
    plain = vllm.engine_arguments(VLLMGenerationConfig(rollout_backend="vllm"), **common(tiny_model, CUDA))  # type: ignore[arg-type]
    assert "speculative_config" not in plain
    assert len(plain["logits_processors"]) == 1


DRAFTS = {
    "vllm": VLLMGenerationConfig(
        rollout_backend="vllm", vllm=VLLMOptionsConfig(speculative_config={"method": "ngram"})
    ),
    "sglang": SGLangGenerationConfig(
        rollout_backend="sglang", sglang=SGLangOptionsConfig(speculative_algorithm="NGRAM")
    ),
}


@pytest.mark.parametrize("params", [{"top_k": 3}, {"top_p": 0.9}, {"min_new_tokens": 2, "max_new_tokens": 4}])
@pytest.mark.parametrize("backend", ["vllm", "sglang"])
def test_requests_that_leave_tokens_out_are_refused_with_drafts(
    tiny_model: Path, backend: str, params: dict[str, Any]
) -> None:
    runner_class = {"vllm": vllm.VLLMModelRunner, "sglang": sglang.SGLangModelRunner}[backend]
    runner = runner_class(DRAFTS[backend], **common(tiny_model, CUDA))  # type: ignore[arg-type]
    request = GenerationRequest(request_id="r", prompt_ids=(1,), params=SamplingParams(**params))
    with pytest.raises(EngineError, match=f"speculative decoding on rollout_backend={backend}"):
        runner.check(request)


def test_sglang_refuses_penalties_with_drafts(tiny_model: Path) -> None:
    runner = sglang.SGLangModelRunner(DRAFTS["sglang"], **common(tiny_model, CUDA))  # type: ignore[arg-type]
    request = GenerationRequest(request_id="r", prompt_ids=(1,), params=SamplingParams(repetition_penalty=1.2))
    with pytest.raises(EngineError, match="repetition_penalty"):
        runner.check(request)


@pytest.mark.parametrize("quantization", [None, "fp8"])
def test_quantised_weights_are_replaced_all_at_once(tiny_model: Path, quantization: str | None) -> None:
    cfg = SGLangGenerationConfig(rollout_backend="sglang", quantization=quantization)
    runner = sglang.SGLangModelRunner(cfg, **common(tiny_model, CUDA))  # type: ignore[arg-type]
    assert runner.takes_partial_updates == (quantization is None)


@pytest.mark.parametrize(
    ("cores", "num_processes", "expected"),
    [({0, 1}, 2, "0|1"), ({4, 5, 6, 9}, 2, "4,6|5,9"), ({7, 3}, 3, "3|7|3"), ({0}, 2, "0|0")],
)
def test_sglangs_processes_share_the_cores_that_there_are(
    monkeypatch: pytest.MonkeyPatch, cores: set[int], num_processes: int, expected: str
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: cores)
    assert sglang.cores_of_processes(num_processes) == expected
