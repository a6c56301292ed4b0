"""The FSDP2 engine replays, records and balances the routes of experts, however packs are cut and tokens are split."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlinf.placement.parallel import ParallelLayout
from tests.unit.hybrid_engines.train.conformance import Setting
from tests.unit.hybrid_engines.train.expert_cases import check_layout, save_experts
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
