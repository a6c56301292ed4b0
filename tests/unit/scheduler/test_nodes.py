"""Ranks of nodes are given by all or none."""

import pytest

from rlinf.errors import ClusterError
from rlinf.scheduler.nodes import rank_nodes
from rlinf.scheduler.probe import NodeProbe


def probe(node_id: str, rank: str | None) -> NodeProbe:
    return NodeProbe(node_id, f"10.0.0.{node_id[-1]}", node_id, rank, (), 0, 2, 0, "python")


def test_node_ranks_are_given_by_all_nodes_or_none() -> None:
    named = [probe("n1", "1"), probe("n2", "0")]
    assert [entry.node_id for entry in rank_nodes(named, None, "n1")] == ["n2", "n1"]
    plain = [probe("n1", None), probe("n2", None)]
    assert [entry.node_id for entry in rank_nodes(plain, None, "n2")] == ["n2", "n1"]
    with pytest.raises(ClusterError, match="not on n2"):
        rank_nodes([probe("n1", "0"), probe("n2", None)], None, "n1")
    with pytest.raises(ClusterError, match="each once"):
        rank_nodes([probe("n1", "0"), probe("n2", "0")], None, "n1")
