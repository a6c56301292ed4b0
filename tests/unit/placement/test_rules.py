"""Rules of a recipe: keys, values and mistakes."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf
from placed_recipes import recipe

from rlinf.config.schema.cluster import ClusterConfig, ComponentPlacementConfig
from rlinf.errors import PlacementError
from rlinf.placement import ClusterPlan
from rlinf.utils.placement import (
    ComponentPlacement,
)


@pytest.mark.parametrize(
    "make",
    [
        lambda rules: ClusterConfig(component_placement=rules),
        lambda rules: {"cluster": {"component_placement": rules}},
        lambda rules: {"component_placement": rules},
        lambda rules: OmegaConf.create({"cluster": {"component_placement": rules}}),
    ],
)
def test_recipe_may_be_mappings_or_objects(cluster: ClusterPlan, make: Callable[..., Any]) -> None:
    rules = {"actor": "0-1", "env": {"node_group": "node", "placement": 1}}
    placement = ComponentPlacement(make(rules), cluster)
    assert (placement.get_world_size("actor"), placement.get_world_size("env")) == (2, 1)


def test_long_form_may_be_the_config_class(cluster: ClusterPlan) -> None:
    rule = ComponentPlacementConfig(node_group="cluster", placement="0-3")
    assert ComponentPlacement(recipe(actor=rule), cluster).get_world_size("actor") == 4


@pytest.mark.parametrize(
    ("rules", "fragments"),
    [
        ({"actor": "0-16"}, ["cluster.component_placement.actor:", "'0-16'", "16 accelerators"]),
        ({"actor,env": "0", "env": "1"}, ["cluster.component_placement.env", "already placed by 'actor,env'"]),
        ({"actor,": "0"}, ["empty component name"]),
        ({"actor": "4-11:0"}, ["cluster.component_placement.actor", "never spans nodes"]),
        ({"env": {"node_group": "frnka", "placement": 0}}, ["component_placement.env.node_group", "Groups: cluster"]),
        ({"env": {"node_group": "node"}}, ["component_placement.env.placement is missing"]),
        ({"env": {"placement": 0, "node_goup": "node"}}, ["node_goup", "Did you mean 'node_group'"]),
        ({"env": {"placement": "0-9:1-10"}}, ["cluster.component_placement.env.placement", "contiguous from 0"]),
        ({"env": 1.5}, ["cluster.component_placement.env", "1.5"]),
        ({"env": True}, ["cluster.component_placement.env", "True"]),
    ],
)
def test_bad_rules_name_path_and_remedy(cluster: ClusterPlan, rules: dict[str, Any], fragments: list[str]) -> None:
    with pytest.raises(PlacementError) as caught:
        ComponentPlacement(recipe(**rules), cluster)
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_all_mistakes_are_reported_at_once(cluster: ClusterPlan) -> None:
    with pytest.raises(PlacementError) as caught:
        ComponentPlacement(recipe(actor="x", env="0-99", rollout="0"), cluster)
    lines = str(caught.value).splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "cluster.component_placement.actor",
        "cluster.component_placement.env",
    ]


def test_rules_must_be_a_mapping(cluster: ClusterPlan) -> None:
    for cfg in (SimpleNamespace(), SimpleNamespace(cluster=SimpleNamespace(component_placement="0-7"))):
        with pytest.raises(PlacementError, match="not a mapping"):
            ComponentPlacement(cfg, cluster)
