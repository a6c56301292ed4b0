"""The FSDP2 engine on a GPU: the cases of the contract, bounds of bfloat16, memory that offloading gives back, NCCL."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import torch.distributed as dist

from rlinf.config.schema.train import MixedPrecisionConfig
from rlinf.hybrid_engines.train.fsdp import FSDPEngine
from rlinf.hybrid_engines.train.process_group import join_process_group
from rlinf.hybrid_engines.weights.bucket import WeightReceiver, fill_buckets, plan_buckets
from rlinf.hybrid_engines.weights.memory import BucketMemory
from rlinf.models import get_model
from rlinf.placement.parallel import ParallelLayout
from tests.unit.hybrid_engines.train.conformance import (
    EngineConformance,
    MakeEngine,
    Setting,
    evaluate,
    model_config,
    reference,
    save_model,
    train,
)
from tests.unit.hybrid_engines.train.rank_processes import run_ranks
from tests.unit.hybrid_engines.train.test_fsdp_conformance import make_engine

pytest.importorskip("transformers")
BF16 = MixedPrecisionConfig(param_dtype="bf16")
ON_GPU = (pytest.mark.gpu, pytest.mark.timeout(600))
LARGEST_ERROR, MEAN_ERROR = 0.3, 0.03
"""Of a log-probability, entropy or value computed in bfloat16."""


def make_gpu_engine(setting: Setting, rank: int) -> FSDPEngine:
    """Build the engine of a rank on a GPU of its own, which computes the same bits each time."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.cuda.set_device(rank)
    # The ranks' own group is for the host alone.
    if dist.is_initialized():
        dist.destroy_process_group()
    join_process_group(torch.device("cuda", rank), rank, setting.layout.world_size)
    return make_engine(setting, rank, f"cuda:{rank}")


@pytest.mark.gpu
@pytest.mark.timeout(600)
class TestFSDPEngineOnGpu(EngineConformance):
    """One rank: several need as many GPUs."""

    make = make_gpu_engine
    settings: ClassVar[dict[str, dict[str, Any]]] = {"one": {"layout": ParallelLayout(data=1)}}


def one_rank(folder: Path, **keys: Any) -> Setting:
    """Return the setting of a single rank."""
    save_model(folder, tied=True)
    return Setting(layout=ParallelLayout(data=1), folder=folder, model={"add_value_head": True}, **keys)


@pytest.mark.parametrize("make", [make_engine, pytest.param(make_gpu_engine, marks=ON_GPU)], ids=["cpu", "gpu"])
def test_bfloat16_is_close_to_float64(tmp_path: Path, make: MakeEngine) -> None:
    (found,) = run_ranks(1, evaluate, make, one_rank(tmp_path, engine={"mixed_precision": BF16}))[0]
    errors = (found.double() - reference(tmp_path).tokens).abs()
    assert float(errors.max()) < LARGEST_ERROR
    assert 1e-5 < float(errors.mean()) < MEAN_ERROR


def publish_and_load(rank: int, make: MakeEngine, setting: Setting) -> list[bool]:
    """Publish an engine's weights in buckets and load them where the engine computes."""
    engine = make(setting, rank)
    train(engine, 1)
    described = [(entry.name, entry.tensor) for entry in engine.describe_weights()]
    manifest = plan_buckets(described, version=1, bucket_bytes=1 << 16)
    buckets = list(fill_buckets(manifest, engine.export_weights(), BucketMemory().allocate))
    target = get_model(model_config(setting)).to(engine.model.device)
    names = {name for name, _ in described}
    WeightReceiver(target, ignore=lambda name: name not in names).load(manifest, buckets)
    state = target.state_dict()
    return [torch.equal(state[name], tensor) for name, tensor in engine.export_weights()]


@pytest.mark.parametrize("make", [make_engine, pytest.param(make_gpu_engine, marks=ON_GPU)], ids=["cpu", "gpu"])
def test_published_weights_arrive_bit_for_bit(tmp_path: Path, make: MakeEngine) -> None:
    equal = run_ranks(1, publish_and_load, make, one_rank(tmp_path, optim={"lr": 1e-2}))[0]
    assert len(equal) > 10
    assert all(equal)


def measure_offloading(rank: int, setting: Setting) -> tuple[int, int, int, bool]:
    engine = make_gpu_engine(setting, rank)
    train(engine, 1)
    held = torch.cuda.memory_allocated()
    engine.offload()
    left, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    engine.onload()
    train(engine, 1)
    return held, left, reserved, torch.cuda.memory_allocated() <= held * 1.1


@pytest.mark.gpu
@pytest.mark.timeout(600)
def test_an_offloaded_engine_gives_its_memory_back(tmp_path: Path) -> None:
    held, left, reserved, is_back = run_ranks(1, measure_offloading, one_rank(tmp_path, optim={"lr": 1e-2}))[0]
    assert left < held / 10, "weights or moments stay on the device"
    # Workspaces of cuBLAS are kept.
    assert reserved < held + (64 << 20)
    assert is_back


def reduce_and_broadcast(rank: int, num_ranks: int) -> list[float]:
    dist.destroy_process_group()
    torch.cuda.set_device(rank)
    join_process_group(torch.device("cuda", rank), rank, num_ranks)
    tensor = torch.full((1 << 20,), float(rank + 1), device="cuda")
    dist.all_reduce(tensor)
    dist.broadcast(tensor, src=0)
    backend = dist.get_backend_config()
    assert "cuda:nccl" in str(backend)
    return [float(tensor.min()), float(tensor.max())]


@pytest.mark.gpu
def test_nccl_reduces_and_broadcasts_on_the_device() -> None:
    assert run_ranks(1, reduce_and_broadcast, 1) == [[1.0, 1.0]]
