"""Components without a place, and groups whose sizes do not fit, are located with a remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from changed_recipes import REWARD, assert_mended

from rlinf.config import validate_cfg
from rlinf.errors import PlacementError

# (changes to the base recipe, path at the start of the line, remedy within the line)
MISTAKES: list[tuple[dict[str, Any], str, str]] = [
    (
        {"cluster.component_placement": {"actor,env": "0:0-2", "rollout": "0:0-1"}},
        "cluster.component_placement.env",
        "3 env ranks and 2 rollout ranks",
    ),
    (
        {"cluster.component_placement": {"actor,env": "0:0-2", "rollout": "0:0-1"}},
        "cluster.component_placement.env",
        "or set runner.enable_decoupled_mode=true",
    ),
    (
        {
            "runner.enable_decoupled_mode": True,
            "cluster.component_placement": {"actor": "0:0-2", "env": "0:0-1", "rollout": "0:0-2"},
        },
        "cluster.component_placement.actor",
        "3 actor ranks and 2 env ranks",
    ),
    ({"reward": REWARD["reward"]}, "cluster.component_placement.reward", "Add 'reward: 0', say"),
    (REWARD | {"reward": None}, "cluster.component_placement.reward", "without a section reward"),
    ({"cluster.component_placement": {"actor,rollout": 0}}, "cluster.component_placement.env", "Add 'env: 0'"),
    (
        {"actor.fsdp_config": {"sharding_strategy": "hybrid_shard"}},
        "actor.fsdp_config.hybrid_shard_size",
        "received None; must divide the 1 actor rank(s)",
    ),
    (
        {"actor.fsdp_config": {"sharding_strategy": "hybrid_shard", "hybrid_shard_size": 2}},
        "actor.fsdp_config.hybrid_shard_size",
        "or set sharding_strategy=full_shard",
    ),
    ({"actor.fsdp_config": {"hybrid_shard_size": 2}}, "actor.fsdp_config.hybrid_shard_size", "sharding_strategy="),
    ({"cluster.component_placement.rollouts": 0}, "cluster.component_placement.rollouts", "Did you mean 'rollout'?"),
]


@pytest.mark.parametrize(("changes", "path", "remedy"), MISTAKES, ids=lambda value: str(value)[:60])
def test_a_mistake_is_located_with_its_remedy(
    recipe: Callable[..., dict[str, Any]], changes: dict[str, Any], path: str, remedy: str
) -> None:
    assert_mended(recipe(changes), path, remedy)


@pytest.mark.parametrize(("envs", "rollouts"), [("0:0-1", "0:0-3"), ("0:0-3", "0:0-1"), ("0:0-1", "0:0-1")])
def test_groups_of_which_one_has_a_multiple_of_the_ranks_pass(
    recipe: Callable[..., dict[str, Any]], envs: str, rollouts: str
) -> None:
    validate_cfg(recipe({"cluster.component_placement": {"actor,env": envs, "rollout": rollouts}}))


PLACEMENTS: list[tuple[dict[str, Any], str, str]] = [
    ({"cluster.component_placement": {"actor,rollout": 0, "env": "1-0"}}, "cluster.component_placement.env", "0-1"),
    ({"cluster.component_placement.actor": 0}, "cluster.component_placement.actor", "name each component once"),
    (
        {"cluster.component_placement": {"actor,rollout": 0, "env": {"node_group": "robots", "placement": 0}}},
        "cluster.component_placement.env.node_group",
        "node_groups",
    ),
    (
        {"cluster.node_groups": [{"label": "a", "node_ranks": "0-3"}]},
        "cluster.node_groups[0].node_ranks",
        "",
    ),
]


@pytest.mark.parametrize(("changes", "path", "remedy"), PLACEMENTS, ids=lambda value: str(value)[:60])
def test_impossible_placement_is_a_placement_error(
    recipe: Callable[..., dict[str, Any]], changes: dict[str, Any], path: str, remedy: str
) -> None:
    with pytest.raises(PlacementError) as caught:
        validate_cfg(recipe(changes))
    assert path in str(caught.value)
    assert remedy in str(caught.value)
