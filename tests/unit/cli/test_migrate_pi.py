"""The settings of published pi-0 and pi-0.5 configurations, which recipes name and do not write."""

from __future__ import annotations

from typing import Any

import pytest

from rlinf.cli.migrate_pi import PUBLISHED_PI, pi_config
from rlinf.config.published_keys import find_rule, published_keys

_LIBERO = "physical-intelligence/libero"


def settings(name: str, **model: Any) -> dict[str, Any]:
    """Return what a recipe that names a configuration gets, without the section's name."""
    found = pi_config(name, {"actor": {"model": {"action_dim": 7, **model}}}, ())
    return {key.removeprefix("actor.model."): value for key, value in found.items()}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "pi0_libero",
            {"horizon": 50, "max_prompt_length": 48, "delta_actions": [6, -1], "unnorm_key": _LIBERO},
        ),
        (
            "pi05_libero",
            {
                "norm_scheme": "quantiles",
                "horizon": 10,
                "max_prompt_length": 200,
                "discrete_state_input": False,
                "unnorm_key": _LIBERO,
            },
        ),
        (
            "pi05_metaworld",
            {
                "norm_scheme": "quantiles",
                "horizon": 5,
                "max_prompt_length": 200,
                "discrete_state_input": False,
                "unnorm_key": "lerobot/metaworld_mt50",
            },
        ),
    ],
)
def test_a_configuration_becomes_keys(name: str, expected: dict[str, Any]) -> None:
    assert settings(name) == {"variant": name.partition("_")[0], **expected}


def test_actions_of_two_arms_and_of_fewer_numbers() -> None:
    assert settings("pi0_aloha_robotwin", action_dim=14)["delta_actions"] == [6, -1, 6, -1]
    assert settings("pi05_droid_polaris", action_dim=8)["delta_actions"] == [7, -1]
    assert settings("pi0_custom", action_dim=7)["delta_actions"] == [7]
    assert settings("pi0_custom", action_dim=10)["delta_actions"] == [9, -1]


def test_what_a_recipe_says_itself_holds() -> None:
    said = {"action_horizon": 8, "max_token_len": 60, "discrete_state_input": True}
    found = settings("pi05_maniskill", openpi=said, openpi_data={"extra_delta_transform": True, "repo_id": "mine"})
    assert found["horizon"] == 8
    assert found["max_prompt_length"] == 60
    assert found["discrete_state_input"] is True
    assert found["delta_actions"] == [6, -1]
    assert "unnorm_key" not in found
    assert "delta_actions" not in settings("pi0_libero", openpi_data={"extra_delta_transform": False})
    # This one says with the same word that its data are relative already.
    assert "delta_actions" not in settings("pi0_custom", openpi_data={"extra_delta_transform": True})
    assert settings("pi05_franka", openpi_data={"extra_delta_transform": True})["delta_actions"] == [7]
    assert "unnorm_key" not in settings("pi0_libero", openpi_data={"norm_stats_path": "/a/norm_stats.json"})


def test_every_configuration_is_one_of_two_kinds() -> None:
    special = {
        name
        for rule in published_keys()
        if rule.key == "actor.model.openpi.config_name" and rule.action == "lost"
        for name in rule.when or ()
    }
    assert not special & PUBLISHED_PI.keys()
    assert special | PUBLISHED_PI.keys() >= {
        "pi0_behavior", "pi05_behavior", "pi05_aloha_robotwin", "pi05_dualfranka_tcp_rot6d", "pi05_isaaclab_stack_cube"
    }  # fmt: skip
    found = find_rule("actor.model.openpi.config_name", "pi05_aloha_robotwin", {})
    assert found is not None
    assert found[0].sets["actor.model.delta_actions"] == [6, -1, 6, -1]
