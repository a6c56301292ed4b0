from collections.abc import Callable
from types import SimpleNamespace

import pytest

from rlinf.placement.cluster_plan import ClusterPlan


@pytest.fixture
def cluster() -> ClusterPlan:
    """Two nodes of eight accelerators."""
    return ClusterPlan(num_nodes=2, accelerators_per_node=8)


@pytest.fixture
def group_spec() -> Callable[..., SimpleNamespace]:
    """Make one entry of ``cluster.node_groups``."""

    def make(label: str, node_ranks: str | int, **fields: int | bool | SimpleNamespace) -> SimpleNamespace:
        defaults = {"env_configs": [], "hardware": None, "ignore_hardware": False, "accelerators_per_node": None}
        return SimpleNamespace(label=label, node_ranks=node_ranks, **{**defaults, **fields})

    return make
