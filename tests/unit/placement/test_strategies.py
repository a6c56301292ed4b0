"""Strategies: where processes go, and what is refused."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from strategy_clusters import visible

from rlinf.errors import PlacementError
from rlinf.placement import (
    AcceleratorType,
    ClusterPlan,
    FlexiblePlacementStrategy,
    NodePlacementStrategy,
    PackedPlacementStrategy,
)


def test_packed_gives_one_device_each(cluster: ClusterPlan) -> None:
    seats = PackedPlacementStrategy(6, 9).get_placement(cluster)
    assert [(seat.cluster_node_rank, seat.local_accelerator_rank) for seat in seats] == [(0, 6), (0, 7), (1, 0), (1, 1)]
    assert [(seat.placement_node_rank, seat.local_rank, seat.local_world_size) for seat in seats] == [
        (0, 0, 2),
        (0, 1, 2),
        (1, 0, 2),
        (1, 1, 2),
    ]
    assert {seat.node_group_label for seat in seats} == {"cluster"}


def test_packed_stride_interleaves(cluster: ClusterPlan) -> None:
    seats = PackedPlacementStrategy(0, 7, num_hardware_per_process=2, stride=2).get_placement(cluster)
    assert visible(seats) == [["0", "2"], ["1", "3"], ["4", "6"], ["5", "7"]]


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        ((0, 6, 2), "7 % 2 = 1"),
        ((0, 5, 2, 2), "2 * 2 = 4"),
        ((3, 2), "start_hardware_rank <= end_hardware_rank"),
        ((-1, 2), "0 <= start_hardware_rank"),
        ((0, 1, 0), "at least 1"),
        ((0, 1, 1, 0), "at least 1"),
    ],
)
def test_packed_checks_its_arguments(arguments: tuple[int, ...], fragment: str) -> None:
    with pytest.raises(PlacementError) as caught:
        PackedPlacementStrategy(*arguments)
    assert fragment in str(caught.value)


def test_packed_beyond_the_cluster_names_what_there_is(cluster: ClusterPlan) -> None:
    with pytest.raises(PlacementError, match="16 accelerators, ranks 0-15"):
        PackedPlacementStrategy(0, 16).get_placement(cluster)


def test_flexible_follows_the_lists_and_keeps_their_order(cluster: ClusterPlan) -> None:
    seats = FlexiblePlacementStrategy([[9], [3, 1], [9]]).get_placement(cluster)
    assert [seat.cluster_node_rank for seat in seats] == [1, 0, 1]
    assert visible(seats) == [["1"], ["3", "1"], ["1"]]
    assert [seat.local_accelerator_rank for seat in seats] == [1, 3, 1]
    assert [seat.placement_node_rank for seat in seats] == [0, 1, 0]
    assert [(seat.local_rank, seat.local_world_size) for seat in seats] == [(0, 2), (0, 1), (1, 2)]


@pytest.mark.parametrize(
    ("lists", "fragment"),
    [([], "no process"), ([[0], []], "process 1 has no hardware"), ([[0, 0]], "twice")],
)
def test_flexible_checks_its_lists(lists: list[list[int]], fragment: str) -> None:
    with pytest.raises(PlacementError, match=fragment):
        FlexiblePlacementStrategy(lists)


@pytest.mark.parametrize(("lists", "fragment"), [([[7, 8]], "never spans"), ([[16]], "ranks 0-15"), ([[-1]], "-1")])
def test_flexible_checks_the_cluster(cluster: ClusterPlan, lists: list[list[int]], fragment: str) -> None:
    with pytest.raises(PlacementError, match=fragment):
        FlexiblePlacementStrategy(lists).get_placement(cluster)


def test_node_placement_repeats_nodes_and_owns_no_accelerator(cluster: ClusterPlan) -> None:
    seats = NodePlacementStrategy([1, 0, 1]).get_placement(cluster)
    assert [seat.cluster_node_rank for seat in seats] == [1, 0, 1]
    assert [seat.local_rank for seat in seats] == [0, 0, 1]
    assert {seat.local_accelerator_rank for seat in seats} == {-1}
    assert {seat.node_group_label for seat in seats} == {"node"}
    assert seats[0].accelerator_type is AcceleratorType.NV_GPU
    assert visible(seats) == [[str(index) for index in range(8)]] * 3


def test_node_placement_counts_within_a_labelled_group(
    cluster: ClusterPlan, group_spec: Callable[..., SimpleNamespace]
) -> None:
    labelled = ClusterPlan(3, 0, [group_spec("late", "1-2")])
    seats = NodePlacementStrategy([1, 0], "late").get_placement(labelled)
    assert [seat.cluster_node_rank for seat in seats] == [2, 1]
    with pytest.raises(PlacementError, match="has 2 node"):
        NodePlacementStrategy([2], "late").get_placement(labelled)


@pytest.mark.parametrize("ranks", [[], [-1]])
def test_node_placement_checks_its_ranks(ranks: list[int]) -> None:
    with pytest.raises(PlacementError):
        NodePlacementStrategy(ranks)


def test_cpu_slots_hold_no_accelerator() -> None:
    seats = PackedPlacementStrategy(0, 1).get_placement(ClusterPlan(1, 0, cpu_slots_per_node=2))
    assert [seat.local_hardware_ranks for seat in seats] == [[0], [1]]
    assert visible(seats) == [[], []]
    assert {seat.accelerator_type for seat in seats} == {AcceleratorType.NO_ACCEL}


def test_unknown_group_suggests_the_closest(cluster: ClusterPlan) -> None:
    with pytest.raises(PlacementError, match="Did you mean 'cluster'"):
        PackedPlacementStrategy(0, 0, node_group="clustr").get_placement(cluster)
