"""Parsing is strict about kinds, lenient about nothing but integers for numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlinf.config import build_config
from rlinf.config.schema.algorithm import GAEConfig
from rlinf.config.schema.cluster import ComponentPlacementConfig
from rlinf.config.schema.env import GymnasiumEnvConfig
from rlinf.config.schema.model import MLPPolicyConfig


def test_discriminators_choose_the_dataclasses(recipe: Callable[..., dict[str, Any]]) -> None:
    cfg = build_config(recipe({"algorithm.gamma": 0.9, "algorithm.value_clip": 0.2}))
    assert type(cfg.env.train) is GymnasiumEnvConfig
    assert type(cfg.actor.model) is MLPPolicyConfig
    assert cfg.algorithm.advantage == GAEConfig(gamma=0.9)
    assert cfg.algorithm.loss.value_clip == 0.2


def test_discriminators_are_case_insensitive(recipe: Callable[..., dict[str, Any]]) -> None:
    cfg = build_config(recipe({"algorithm.adv_type": "GAE", "env.train.env_type": "Gymnasium"}))
    assert cfg.algorithm.adv_type == "gae"
    assert cfg.env.train.env_type == "gymnasium"


def test_integer_is_accepted_as_number_and_becomes_one(recipe: Callable[..., dict[str, Any]]) -> None:
    lr = build_config(recipe({"actor.optim": {"lr": 1}})).actor.optim.lr
    assert isinstance(lr, float)
    assert lr == 1.0


def test_empty_section_takes_its_defaults(recipe: Callable[..., dict[str, Any]]) -> None:
    assert build_config(recipe({"rollout": None})) == build_config(recipe())


def test_placement_takes_ranks_strings_and_the_long_form(recipe: Callable[..., dict[str, Any]]) -> None:
    rules = {"actor": 0, "rollout": "0:0-1", "env": {"node_group": "node", "placement": "0"}}
    parsed = build_config(recipe({"cluster.component_placement": rules})).cluster.component_placement
    assert parsed == {
        "actor": 0,
        "rollout": "0:0-1",
        "env": ComponentPlacementConfig(node_group="node", placement="0"),
    }
