"""A long wait for nodes is a warning, so that ``--quiet`` is not silent meanwhile."""

from __future__ import annotations

import logging

import pytest

from rlinf.errors import ClusterError
from rlinf.scheduler import nodes
from rlinf.utils.logging import get_logger


@pytest.mark.parametrize(("long_seconds", "level"), [(0.0, logging.WARNING), (1e9, logging.INFO)])
def test_a_long_wait_is_a_warning(monkeypatch: pytest.MonkeyPatch, long_seconds: float, level: int) -> None:
    monkeypatch.setenv("RLINF_CLUSTER_TIMEOUT_SECONDS", "0.05")
    monkeypatch.setattr(nodes.ray, "nodes", lambda: [{"Alive": True}])
    monkeypatch.setattr(nodes, "_LONG_SECONDS", long_seconds)
    monkeypatch.setattr(nodes, "_LOOK_SECONDS", 0.1)
    records: list[logging.LogRecord] = []
    logger = get_logger(nodes.__name__)
    logger.addFilter(lambda record: records.append(record) or True)
    with pytest.raises(ClusterError, match="Only 1 of 2 nodes"):
        nodes.wait_for_nodes(2)
    logger.filters.clear()
    assert [record.levelno for record in records if "Waiting for nodes" in record.getMessage()] == [level]
