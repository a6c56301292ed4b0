"""Sizes of a policy must be known when it is built."""

from __future__ import annotations

import pytest

from rlinf.config.schema.model import MLPPolicyConfig
from rlinf.errors import ConfigError


def test_sizes_that_are_given_are_known() -> None:
    cfg = MLPPolicyConfig(model_type="mlp_policy", obs_dim=4, action_dim=2)
    assert (cfg.state_size, cfg.action_size) == (4, 2)


@pytest.mark.parametrize(("name", "key"), [("state_size", "obs_dim"), ("action_size", "action_dim")])
def test_a_size_that_only_an_environment_knows_is_named(name: str, key: str) -> None:
    with pytest.raises(ConfigError, match=f"actor.model.{key}: missing"):
        getattr(MLPPolicyConfig(model_type="mlp_policy"), name)
