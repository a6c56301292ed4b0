"""Which keys of a recipe are not the defaults."""

from typing import Any

import pytest

from rlinf.config import list_recipes, load_recipe, to_dict, validate_cfg
from rlinf.config.differences import RecipeValue, recipe_values
from rlinf.config.schema.cluster import ClusterConfig, TracerConfig
from rlinf.config.schema.root import RLinfConfig


def by_path(cfg: ClusterConfig | RLinfConfig) -> dict[str, RecipeValue]:
    return {value.path: value for value in recipe_values(cfg)}


def test_values_are_compared_with_the_defaults_of_their_dataclass() -> None:
    values = by_path(ClusterConfig(num_nodes=3, tracer=TracerConfig(enable=True)))
    assert not values["num_nodes"].is_default
    assert (values["tracer.enable"].value, values["tracer.enable"].default) == (True, False)
    assert values["tracer.path"].is_default
    assert values["node_groups"].is_default


def test_a_value_that_must_be_given_is_no_default() -> None:
    values = by_path(validate_cfg(load_recipe("gym_cartpole_ppo_mlp")))
    assert values["env.train.env_type"].default is None
    assert not values["env.train.env_type"].is_default


@pytest.mark.parametrize("name", [name for name in list_recipes() if name != "point"])
def test_every_key_of_every_recipe_is_there(name: str) -> None:
    cfg = validate_cfg(load_recipe(name))
    values = by_path(cfg)
    assert len(values) == len(recipe_values(cfg))

    def check(data: dict[str, Any], prefix: str) -> None:
        for key, value in data.items():
            path = f"{prefix}{key}"
            if path in values:
                assert values[path].value == value
            else:
                check(value, f"{path}.")

    check(to_dict(cfg), "")
