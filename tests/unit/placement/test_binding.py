"""Processes are bound to devices: which are their own, and which they see."""

import pytest
from strategy_clusters import visible

from rlinf.errors import PlacementError
from rlinf.placement import (
    ClusterPlan,
    PackedPlacementStrategy,
)


def test_packed_refuses_a_process_over_two_nodes(cluster: ClusterPlan) -> None:
    with pytest.raises(PlacementError) as caught:
        PackedPlacementStrategy(4, 11, num_hardware_per_process=8).get_placement(cluster)
    assert "PackedPlacementStrategy(4, 11" in str(caught.value)
    assert "nodes 0-1" in str(caught.value)


def test_packed_range_over_two_nodes_is_fine_when_no_process_spans_them(cluster: ClusterPlan) -> None:
    seats = PackedPlacementStrategy(4, 11, num_hardware_per_process=4).get_placement(cluster)
    assert [seat.cluster_node_rank for seat in seats] == [0, 1]
    assert visible(seats) == [["4", "5", "6", "7"], ["0", "1", "2", "3"]]


def test_packed_stride_over_two_nodes_is_refused() -> None:
    with pytest.raises(PlacementError, match="never spans nodes"):
        PackedPlacementStrategy(0, 3, num_hardware_per_process=2, stride=2).get_placement(ClusterPlan(2, [3, 3]))


def test_own_device_is_the_same_whether_isolated_or_not(cluster: ClusterPlan) -> None:
    isolated = PackedPlacementStrategy(0, 3).get_placement(cluster)
    shared = PackedPlacementStrategy(0, 3).get_placement(cluster, isolate_accelerator=False)
    assert [seat.local_accelerator_rank for seat in shared] == [0, 1, 2, 3]
    assert [seat.local_accelerator_rank for seat in isolated] == [0, 1, 2, 3]
    assert visible(isolated) == [["0"], ["1"], ["2"], ["3"]]
    assert visible(shared) == [[str(index) for index in range(8)]] * 4
    assert [seat.isolate_accelerator for seat in (isolated[0], shared[0])] == [True, False]
