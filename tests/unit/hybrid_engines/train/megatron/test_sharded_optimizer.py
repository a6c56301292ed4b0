"""Masters are float32 and collect what is too small for the weights; each replica keeps a share of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rlinf.placement.parallel import ParallelLayout
from tests.unit.hybrid_engines.train.conformance import Setting, loss_pass, save_model, share_of
from tests.unit.hybrid_engines.train.rank_processes import run_ranks

pytest.importorskip("transformers")
pytest.importorskip("megatron.core")

from tests.unit.hybrid_engines.train.megatron.megatron_engines import make_engine

pytestmark = pytest.mark.timeout(300)
STEPS, RATE = 4, 1e-6


def train(rank: int, setting: Setting) -> tuple[float, float, torch.dtype, int, int]:
    """Return how far a norm's masters and weights moved, their type, and elements of shares and parameters."""
    engine = make_engine(setting, rank)
    before, weights = engine.optimizer.whole(lambda share: share.master), dict(engine.export_weights())
    for _ in range(STEPS):
        engine.forward_backward(share_of(engine), loss_pass(engine.world_size))
        engine.step()
    after, exported = engine.optimizer.whole(lambda share: share.master), dict(engine.export_weights())
    # Weights near 0 have a finer resolution: they would move anyway.
    name = "model.layers.0.input_layernorm.weight"
    moved = float((engine.shards.whole(name, after) - engine.shards.whole(name, before)).abs().max())
    shown = float((exported[name].float() - weights[name].float()).abs().max())
    return (
        moved,
        shown,
        exported[name].dtype,
        sum(share.end - share.begin for share in engine.optimizer.shares),
        sum(parameter.numel() for parameter in engine.shards.fused.values()),
    )


@pytest.mark.parametrize("replicas", [1, 2])
def test_updates_below_the_resolution_of_weights_are_not_lost(tmp_path: Path, replicas: int) -> None:
    save_model(tmp_path / "model", tied=True)
    optim = {"lr": RATE, "weight_decay": 0.0}
    setting = Setting(ParallelLayout(data=replicas), tmp_path / "model", model={"precision": "bf16"}, optim=optim)
    found = run_ranks(replicas, train, setting)
    for moved, shown, dtype, _, _ in found:
        assert RATE < moved < 2 * STEPS * RATE
        assert shown == 0.0
        assert dtype == torch.bfloat16
    assert sum(row[3] for row in found) == found[0][4]
