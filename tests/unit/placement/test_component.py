"""Components of a recipe are placed as its rules say."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from placed_recipes import recipe

from rlinf.errors import PlacementError
from rlinf.placement import ClusterPlan, FlexiblePlacementStrategy, NodePlacementStrategy
from rlinf.utils.placement import (
    ComponentPlacement,
    HybridComponentPlacement,
    ModelParallelComponentPlacement,
    PlacementMode,
)


def test_shared_key_places_each_component(cluster: ClusterPlan) -> None:
    placement = HybridComponentPlacement(recipe(**{"actor, inference": "0-7", "rollout": "all", "env": 3}), cluster)
    assert placement.components == ["actor", "inference", "rollout", "env"]
    assert [placement.get_world_size(name) for name in placement.components] == [8, 8, 16, 1]
    assert placement.placement_mode is PlacementMode.HYBRID
    assert "inference" in placement
    assert "critic" not in placement


def test_strategy_places_as_the_rule_says(cluster: ClusterPlan) -> None:
    placement = HybridComponentPlacement(recipe(actor="0-15:0-3"), cluster)
    strategy = placement.get_strategy("actor")
    assert isinstance(strategy, FlexiblePlacementStrategy)
    seats = strategy.get_placement(cluster)
    assert [seat.cluster_node_rank for seat in seats] == [0, 0, 1, 1]
    assert seats[1].visible_accelerators == ["4", "5", "6", "7"]
    assert placement.get_placement("actor") == seats


def test_node_group_rules_use_node_placement(cluster: ClusterPlan) -> None:
    rule = {"node_group": "node", "placement": "0-1:0-3"}
    strategy = HybridComponentPlacement(recipe(agent=rule), cluster).get_strategy("agent")
    assert isinstance(strategy, NodePlacementStrategy)
    assert [seat.cluster_node_rank for seat in strategy.get_placement(cluster)] == [0, 0, 1, 1]


def test_nodes_of_a_labelled_group_are_cluster_nodes(group_spec: Callable[..., SimpleNamespace]) -> None:
    cluster = ClusterPlan(3, 8, [group_spec("late", "1-2", ignore_hardware=True)])
    placement = HybridComponentPlacement(recipe(agent={"node_group": "late", "placement": "all"}), cluster)
    assert [seat.cluster_node_rank for seat in placement.get_placement("agent")] == [1, 2]


def test_unplaced_component_suggests_the_closest(cluster: ClusterPlan) -> None:
    with pytest.raises(PlacementError, match="Did you mean 'rollout'"):
        ComponentPlacement(recipe(rollout="0"), cluster).get_strategy("rolout")


@pytest.mark.parametrize(
    ("actor", "rollout", "mode"),
    [
        ("0-7", "0-7", PlacementMode.COLLOCATED),
        ("0-7:0-1", "0-7", PlacementMode.COLLOCATED),
        ("all", "0-15", PlacementMode.COLLOCATED),
        ("0-7", "8-15", PlacementMode.DISAGGREGATED),
    ],
)
def test_model_parallel_mode_follows_the_devices(cluster: ClusterPlan, actor: str, rollout: str, mode: Any) -> None:
    placement = ModelParallelComponentPlacement(recipe(actor=actor, rollout=rollout), cluster)
    assert placement.placement_mode is mode


def test_model_parallel_compares_devices_over_overlapping_groups(group_spec: Callable[..., SimpleNamespace]) -> None:
    cluster = ClusterPlan(2, 8, [group_spec("second", 1)])
    rules = {"actor": "8-15", "rollout": {"node_group": "second", "placement": "0-7"}}
    assert ModelParallelComponentPlacement(recipe(**rules), cluster).placement_mode is PlacementMode.COLLOCATED


def test_model_parallel_refuses_a_partial_overlap(cluster: ClusterPlan) -> None:
    cfg = recipe(actor="0-7", rollout="4-11")
    with pytest.raises(PlacementError, match="share 4 of 8 and 8"):
        ModelParallelComponentPlacement(cfg, cluster)


def test_model_parallel_needs_actor_and_rollout(cluster: ClusterPlan) -> None:
    with pytest.raises(PlacementError, match="'rollout' is not placed"):
        ModelParallelComponentPlacement(recipe(actor="0"), cluster)


def test_offline_keeps_what_is_known_and_names_what_is_not() -> None:
    placement = HybridComponentPlacement(recipe(actor="0-3:0-7", env="all", rollout="all:0-5"), ClusterPlan())
    assert [placement.find_world_size(name) for name in placement.components] == [8, None, 6]
    assert [placement.find_process_sizes(name) for name in placement.components] == [[1] * 8, None, None]
    assert placement.get_world_size("rollout") == 6
    for ask in (placement.get_world_size, placement.get_strategy):
        with pytest.raises(PlacementError, match=r"cluster\.component_placement\.env.*cluster\.num_nodes"):
            ask("env")
    with pytest.raises(PlacementError, match="not known offline"):
        placement.get_placement("actor")


@pytest.mark.parametrize("spec", ["all,8", "0,all", "all:1-4", "0-3:1-4", "0-1,1-2", "0-2:0-1"])
def test_offline_still_checks_the_grammar(spec: str) -> None:
    with pytest.raises(PlacementError, match=r"^cluster\.component_placement\.actor: segment"):
        HybridComponentPlacement(recipe(actor=spec), ClusterPlan())


def test_model_parallel_mode_offline() -> None:
    collocated = ModelParallelComponentPlacement(recipe(**{"actor,rollout": "all"}), ClusterPlan())
    assert collocated.placement_mode is PlacementMode.COLLOCATED
    disjoint = ModelParallelComponentPlacement(recipe(actor="0-3", rollout="4-7"), ClusterPlan())
    assert disjoint.placement_mode is PlacementMode.DISAGGREGATED
    with pytest.raises(PlacementError, match=r"cluster\.num_nodes"):
        ModelParallelComponentPlacement(recipe(actor="all", rollout="0-3"), ClusterPlan())


def test_the_recipe_may_be_named_as_published(cluster: ClusterPlan) -> None:
    rules = recipe(actor="0-1")
    for kind in (ComponentPlacement, HybridComponentPlacement):
        assert kind(config=rules, cluster=cluster).get_world_size("actor") == 2
        mistakes: list[dict[str, Any]] = [{"cluster": cluster}, {"config": rules}]
        for wrong in (*mistakes, {"cfg": rules, "config": rules, "cluster": cluster}):
            with pytest.raises(TypeError, match="give a recipe"):
                kind(**wrong)
