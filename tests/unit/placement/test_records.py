"""Strategies and placements travel between processes."""

import pickle

from rlinf.placement import (
    ClusterPlan,
    PackedPlacementStrategy,
)


def test_strategies_and_placements_travel_between_processes(cluster: ClusterPlan) -> None:
    strategy = pickle.loads(pickle.dumps(PackedPlacementStrategy(0, 1)))
    seats = strategy.get_placement(cluster)
    assert pickle.loads(pickle.dumps(seats)) == seats
    group = cluster.get_node_group()
    assert pickle.loads(pickle.dumps(group)).locate(9) == (1, 1)
