"""The Megatron-Core engine keeps the contract of training engines, in every layout."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from rlinf.placement.parallel import ParallelLayout
from tests.unit.hybrid_engines.train.conformance import EngineConformance

pytest.importorskip("transformers")
pytest.importorskip("megatron.core")
pytestmark = pytest.mark.timeout(600)

from tests.unit.hybrid_engines.train.megatron.megatron_engines import make_engine  # noqa: E402


class TestMegatronEngine(EngineConformance):
    """Matrices and tokens split over ranks, and layers over stages; test_engine has the other layouts."""

    make = make_engine
    settings: ClassVar[dict[str, dict[str, Any]]] = {
        "TP2 SP": {"layout": ParallelLayout(data=1, tensor=2, sequence=True)},
        "PP2": {"layout": ParallelLayout(data=1, pipeline=2)},
    }


@pytest.mark.slow
class TestAllLayouts(EngineConformance):
    """Layouts of up to four ranks."""

    make = make_engine
    settings: ClassVar[dict[str, dict[str, Any]]] = {
        "one": {"layout": ParallelLayout(data=1)},
        "DP2": {"layout": ParallelLayout(data=2)},
        "TP2": {"layout": ParallelLayout(data=1, tensor=2)},
        "PP2 VPP2": {"layout": ParallelLayout(data=1, pipeline=2, virtual_pipeline=2)},
        "CP2": {"layout": ParallelLayout(data=1, context=2)},
        "TP2 PP2 SP": {"layout": ParallelLayout(data=1, tensor=2, pipeline=2, sequence=True)},
        "TP2 CP2 SP": {"layout": ParallelLayout(data=1, tensor=2, context=2, sequence=True)},
    }


@pytest.mark.slow
class TestExpertLayouts(EngineConformance):
    """Layouts of a model with experts."""

    make = make_engine
    models = ("experts",)
    settings: ClassVar[dict[str, dict[str, Any]]] = {
        "one": {"layout": ParallelLayout(data=1)},
        "EP2": {"layout": ParallelLayout(data=2, expert=2)},
        "TP2 EP2 SP": {"layout": ParallelLayout(data=2, tensor=2, expert=2, sequence=True)},
        "TP2 PP2 EP2 SP": {"layout": ParallelLayout(data=2, tensor=2, pipeline=2, expert=2, sequence=True)},
        "EP2 CP2": {"layout": ParallelLayout(data=2, expert=2, context=2)},
    }
