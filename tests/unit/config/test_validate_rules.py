"""Rules from outside, and a typed tree, are checked as recipes are."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from rlinf.config import build_config, validate_cfg
from rlinf.config.registries import task_types
from rlinf.config.schema.root import EmbodiedConfig
from rlinf.config.validate import RULES, register_rule
from rlinf.errors import ConfigError


def test_typed_tree_is_checked_again(recipe: Callable[..., dict[str, Any]]) -> None:
    cfg = build_config(recipe())
    broken = dataclasses.replace(cfg, actor=dataclasses.replace(cfg.actor, micro_batch_size=-1))
    with pytest.raises(ConfigError, match=r"actor\.micro_batch_size: received -1"):
        validate_cfg(broken)
    assert validate_cfg(cfg) == cfg


def check_name(check: Any) -> None:
    check.problem("runner.logger.experiment_name", f"received {check.cfg.runner.logger.experiment_name}")


def check_name_as_before(cfg: Any, world: Any, problems: Any) -> None:
    assert world.actor
    problems.add("runner.logger.experiment_name", f"received {cfg.runner.logger.experiment_name}")


@pytest.mark.parametrize("rule", [check_name, check_name_as_before])
def test_rules_from_outside_hold_for_a_kind_of_recipe_and_those_derived_from_it(
    recipe: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch, rule: Callable[..., Any]
) -> None:
    monkeypatch.setattr("rlinf.config.validate.RULES", dict(RULES))
    monkeypatch.setattr(task_types, "_entries", dict(task_types._entries))

    assert register_rule(EmbodiedConfig)(rule) is rule
    task_types.register(
        "mine", config=dataclasses.make_dataclass("MineConfig", [], bases=(EmbodiedConfig,), frozen=True)
    )
    for task in ("embodied", "mine"):
        with pytest.raises(ConfigError, match=r"has 1 problem:\n.*experiment_name: received"):
            validate_cfg(recipe({"runner.task_type": task}))
