"""The FSDP2 engine replays, records and balances the routes of experts, however packs are cut and tokens are split."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rlinf.placement.parallel import ParallelLayout
from tests.unit.hybrid_engines.train.conformance import SEQUENCES, Setting, Tensors, assert_close, gradients_of
from tests.unit.hybrid_engines.train.expert_cases import call, check_layout, save_experts, steered, use
from tests.unit.hybrid_engines.train.rank_processes import run_ranks
from tests.unit.hybrid_engines.train.test_fsdp_conformance import make_engine

pytest.importorskip("transformers")
pytestmark = pytest.mark.timeout(300)
LAYOUTS = {
    "one": (ParallelLayout(data=1), False),
    "sharded": (ParallelLayout(data=2), True),
    "CP2": (ParallelLayout(data=1, context=2), True),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize(("forced", "cut"), [(True, 1), (False, 0), (False, 1)], ids=["replayed", "whole", "cut"])
def test_routes_are_replayed_recorded_and_balanced(tmp_path: Path, name: str, forced: bool, cut: int) -> None:
    layout, is_sharded = LAYOUTS[name]
    setting = Setting(layout, save_experts(tmp_path), sharded=is_sharded, engine={"gradient_checkpointing": cut == 1})
    check_layout(make_engine, setting, cut, forced=forced)


def passes_under_way(rank: int, setting: Setting) -> list[Tensors]:
    """Return gradients of two micro-batches, one with replayed routes: the first waits for the second, or not."""
    engine = make_engine(setting, rank)
    found = []
    for waits in (True, False):
        losses = []
        for group, forced in ((SEQUENCES[:3], True), (SEQUENCES[3:], False)):
            batch = steered(group, forced=forced, balance=None, counts=1.0)
            losses.append(use(call(engine.model, batch), batch, 1.0)[0])
            if not waits:
                losses.pop().backward()
        if waits:
            torch.stack(losses).sum().backward()
        found.append(gradients_of(engine))
        engine.model.zero_grad()
    return found


def test_a_recomputed_layer_takes_the_routes_of_its_own_micro_batch(tmp_path: Path) -> None:
    folder, layout = save_experts(tmp_path), ParallelLayout(data=1)
    kept = run_ranks(1, passes_under_way, Setting(layout, folder))[0]
    recomputed = run_ranks(1, passes_under_way, Setting(layout, folder, engine={"gradient_checkpointing": True}))[0]
    for gradients in (kept[1], *recomputed):
        assert_close(gradients, kept[0], 1e-6)
