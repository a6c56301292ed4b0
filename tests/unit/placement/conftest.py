from types import SimpleNamespace

import pytest


@pytest.fixture
def group_spec():
    """Make one entry of ``cluster.node_groups``."""

    def make(label, node_ranks, **fields):
        defaults = {"env_configs": [], "hardware": None, "ignore_hardware": False, "accelerators_per_node": None}
        return SimpleNamespace(label=label, node_ranks=node_ranks, **{**defaults, **fields})

    return make
