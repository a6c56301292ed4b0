"""The FSDP2 engine keeps the contract of training engines: on one rank, replicated on two, sharded over two."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from rlinf.config.schema.train import FSDPConfig, OptimConfig
from rlinf.hybrid_engines.train.fsdp import FSDPEngine
from rlinf.models import get_model
from rlinf.placement.parallel import ParallelLayout
from tests.unit.hybrid_engines.train.conformance import (
    EngineConformance,
    Setting,
    assert_close,
    differentiate,
    learn,
    model_config,
    reference,
    save_model,
)
from tests.unit.hybrid_engines.train.rank_processes import run_ranks

pytest.importorskip("transformers")
pytestmark = pytest.mark.timeout(600)


def make_engine(setting: Setting, rank: int, device: str = "cpu") -> FSDPEngine:
    """Build the engine of one rank."""
    torch.manual_seed(0)
    return FSDPEngine(
        get_model(model_config(setting), on_meta=True),
        optim=OptimConfig(**setting.optim),
        fsdp=FSDPConfig(
            sharding_strategy="full_shard" if setting.sharded else "no_shard",
            context_parallel_size=setting.layout.context,
            **setting.engine,
        ),
        precision="fp32",
        device=torch.device(device),
        rank=rank,
        world_size=setting.layout.world_size,
    )


class TestFSDPEngine(EngineConformance):
    """Replicas and shards."""

    make = make_engine
    settings: ClassVar[dict[str, dict[str, Any]]] = {
        "one": {"layout": ParallelLayout(data=1)},
        "replicated": {"layout": ParallelLayout(data=2)},
        "sharded": {"layout": ParallelLayout(data=2), "sharded": True},
    }


def make_hybrid_engine(setting: Setting, rank: int) -> FSDPEngine:
    """Build the engine of one rank of four: two replicas of two shards each."""
    torch.manual_seed(0)
    return FSDPEngine(
        get_model(model_config(setting), on_meta=True),
        optim=OptimConfig(**setting.optim),
        fsdp=FSDPConfig(sharding_strategy="hybrid_shard", hybrid_shard_size=2),
        precision="fp32",
        device=torch.device("cpu"),
        rank=rank,
        world_size=4,
    )


@pytest.mark.slow
class TestHybridShards(EngineConformance):
    """Two replicas of two shards; the test below keeps the fast part."""

    make = make_hybrid_engine
    settings: ClassVar[dict[str, dict[str, Any]]] = {"hybrid": {"layout": ParallelLayout(data=4)}}


@pytest.mark.slow
class TestContext(EngineConformance):
    """Ranks that share tokens, and data-parallel ranks of two such; test_fsdp_experts keeps the fast part."""

    make = make_engine
    settings: ClassVar[dict[str, dict[str, Any]]] = {
        "CP2": {"layout": ParallelLayout(data=1, context=2), "sharded": True},
        "DP2 CP2": {"layout": ParallelLayout(data=2, context=2)},
        "DP2 CP2 sharded": {"layout": ParallelLayout(data=2, context=2), "sharded": True},
    }


@pytest.mark.slow
class TestExperts(EngineConformance):
    """A model with experts; test_fsdp_experts keeps the fast part."""

    make = make_engine
    models = ("experts",)
    settings: ClassVar[dict[str, dict[str, Any]]] = {
        "one": {"layout": ParallelLayout(data=1)},
        "sharded": {"layout": ParallelLayout(data=2), "sharded": True},
        "CP2": {"layout": ParallelLayout(data=1, context=2), "sharded": True},
    }


def count_held(rank: int, setting: Setting) -> int:
    weight = make_hybrid_engine(setting, rank).model.get_parameter("model.norm.weight")
    return int(weight.to_local().numel())  # type: ignore[attr-defined]


def test_replicas_that_are_sharded_learn_as_one_rank_does_and_checkpoints_go_both_ways(tmp_path: Path) -> None:
    save_model(tmp_path / "tied", tied=True)
    keys: dict[str, Any] = {"folder": tmp_path / "tied", "model": {"add_value_head": True}, "optim": {"lr": 1e-3}}
    hybrid, one = Setting(layout=ParallelLayout(data=4), **keys), Setting(layout=ParallelLayout(data=1), **keys)
    assert run_ranks(4, count_held, hybrid) == [32] * 4, "halves of 64"
    for gradients, _ in run_ranks(4, differentiate, make_hybrid_engine, hybrid):
        assert_close(gradients, reference(tmp_path / "tied").gradients, 1e-5)
    run_ranks(4, learn, make_hybrid_engine, hybrid, 1, None, tmp_path / "hybrid")
    expected, _ = run_ranks(1, learn, make_engine, one, 3, None, tmp_path / "one")[0]
    found, _ = run_ranks(1, learn, make_engine, one, 2, tmp_path / "hybrid")[0]
    assert_close(found, expected, 1e-4)
    further, _ = run_ranks(1, learn, make_engine, one, 1, tmp_path / "one")[0]
    for weights, _ in run_ranks(4, learn, make_hybrid_engine, hybrid, 1, tmp_path / "one"):
        assert_close(weights, further, 1e-4)
