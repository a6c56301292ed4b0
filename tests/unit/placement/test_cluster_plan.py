"""Clusters that are planned before they are there: what is declared, and what must be."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from rlinf.errors import PlacementError
from rlinf.placement import ClusterPlan


def test_plan_with_given_accelerators_is_known() -> None:
    plan = ClusterPlan(2, 8)
    assert plan.get_node_group().num_hardware_ranks == 16
    assert plan.get_node_info(1).num_accelerators == 8
    with pytest.raises(PlacementError, match="Node 2 does not exist"):
        plan.get_node_info(2)


def test_plan_without_accelerators_says_what_to_set() -> None:
    group = ClusterPlan(2).get_node_group()
    assert not group.is_known
    with pytest.raises(PlacementError, match="accelerators_per_node"):
        _ = group.num_hardware_ranks


def test_plan_without_num_nodes_says_what_to_set(group_spec: Callable[..., SimpleNamespace]) -> None:
    plan = ClusterPlan(None, 8, [group_spec("a", "0-1")])
    with pytest.raises(PlacementError, match=r"cluster\.num_nodes"):
        _ = plan.num_nodes
    for label in ("cluster", "node"):
        with pytest.raises(PlacementError, match=r"cluster\.num_nodes"):
            _ = plan.get_node_group(label).num_hardware_ranks
    assert plan.get_node_group("a").num_hardware_ranks == 16


def test_groups_declare_accelerators_for_the_default_group_too(group_spec: Callable[..., SimpleNamespace]) -> None:
    specs = [group_spec("a", "0-1", accelerators_per_node=8), group_spec("b", 2, accelerators_per_node=0)]
    assert ClusterPlan(3, None, specs).get_node_group().resources_per_node == [8, 8, 0]


def test_what_a_group_declares_comes_before_what_is_assumed(group_spec: Callable[..., SimpleNamespace]) -> None:
    specs = [group_spec("a", 0, accelerators_per_node=4)]
    assert ClusterPlan(2, 8, specs).get_node_group().resources_per_node == [4, 8]


def test_contradicting_declarations_are_refused(group_spec: Callable[..., SimpleNamespace]) -> None:
    specs = [group_spec("a", "0-1", accelerators_per_node=8), group_spec("b", 1, accelerators_per_node=4)]
    with pytest.raises(PlacementError, match=r"node_groups\[1\]\.accelerators_per_node is 4"):
        ClusterPlan(2, None, specs)


def test_plan_checks_the_list_of_accelerators() -> None:
    assert ClusterPlan(2, [8, 0]).get_node_group().resources_per_node == [8, 0]
    with pytest.raises(PlacementError, match="lists 1 nodes"):
        ClusterPlan(2, [8])
    with pytest.raises(PlacementError, match="0 or more"):
        ClusterPlan(2, -1)
