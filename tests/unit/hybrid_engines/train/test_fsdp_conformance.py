"""The FSDP2 engine keeps the contract of training engines: on one rank, replicated on two, sharded over two."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch

from rlinf.config.schema.train import FSDPConfig, OptimConfig
from rlinf.hybrid_engines.train.fsdp import FSDPEngine
from rlinf.models import get_model
from rlinf.placement.parallel import ParallelLayout
from tests.unit.hybrid_engines.train.conformance import EngineConformance, Setting, model_config

pytest.importorskip("transformers")
pytestmark = pytest.mark.timeout(600)


def make_engine(setting: Setting, rank: int) -> FSDPEngine:
    """Build the engine of one rank."""
    torch.manual_seed(0)
    return FSDPEngine(
        get_model(model_config(setting), on_meta=True),
        optim=OptimConfig(**setting.optim),
        fsdp=FSDPConfig(sharding_strategy="full_shard" if setting.sharded else "no_shard"),
        precision="fp32",
        device=torch.device("cpu"),
        rank=rank,
        world_size=setting.layout.data,
    )


class TestFSDPEngine(EngineConformance):
    """Replicas and shards."""

    make = make_engine
    settings: ClassVar[dict[str, dict[str, Any]]] = {
        "one": {"layout": ParallelLayout(data=1)},
        "replicated": {"layout": ParallelLayout(data=2)},
        "sharded": {"layout": ParallelLayout(data=2), "sharded": True},
    }
