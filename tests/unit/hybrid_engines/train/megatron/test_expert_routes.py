"""Every layout of Megatron-Core replays, records and balances the routes of experts as transformers would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlinf.placement.parallel import ParallelLayout
from tests.unit.hybrid_engines.train.conformance import Setting
from tests.unit.hybrid_engines.train.expert_cases import check_layout, save_experts

pytest.importorskip("transformers")
pytest.importorskip("megatron.core")

from tests.unit.hybrid_engines.train.megatron.megatron_engines import make_engine

pytestmark = pytest.mark.timeout(300)
LAYOUTS: dict[str, dict[str, Any]] = {
    "PP2 VPP2 recompute": {"pipeline": 2, "virtual_pipeline": 2, "recompute": "full"},
    "TP2 SP": {"tensor": 2, "expert_tensor": 2, "sequence": True},
}
# Each costs about as much as the two above together, and combines what they show alone.
FURTHER_LAYOUTS: dict[str, dict[str, Any]] = {
    "one": {},
    "EP2": {"data": 2, "expert": 2},
    "CP2": {"context": 2},
    "EP2 CP2 recompute": {"data": 2, "expert": 2, "context": 2, "recompute": "full"},
    "TP2 PP2 EP2 SP": {"data": 2, "tensor": 2, "pipeline": 2, "expert": 2, "sequence": True},
}
ALL_LAYOUTS = [
    *[pytest.param(axes, id=name) for name, axes in LAYOUTS.items()],
    *[pytest.param(axes, id=name, marks=pytest.mark.slow) for name, axes in FURTHER_LAYOUTS.items()],
]


@pytest.mark.parametrize("axes", ALL_LAYOUTS)
@pytest.mark.parametrize("forced", [True, False], ids=["replayed", "own"])
def test_routes_are_replayed_recorded_and_balanced_in_every_layout(
    tmp_path: Path, axes: dict[str, Any], forced: bool
) -> None:
    keys = {key: axes[key] for key in ("recompute",) if key in axes}
    layout = ParallelLayout(**{"data": 1, **{key: value for key, value in axes.items() if key not in keys}})
    # Three micro-batches: two stages of the interleaved schedule need four.
    check_layout(make_engine, Setting(layout, save_experts(tmp_path), engine=keys), 1, forced=forced)
