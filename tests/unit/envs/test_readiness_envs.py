"""Configurations of environments are checked without building one."""

from __future__ import annotations

import pytest
from builtin_configs import gymnasium_config, metaworld_config

from rlinf.envs.readiness import check_env_config, imports_simulator
from rlinf.errors import ConfigError


def test_an_id_that_is_registered_passes_and_another_is_named() -> None:
    check_env_config(gymnasium_config("CartPole-v1"))
    with pytest.raises(ConfigError, match="CartPole-v1"):
        check_env_config(gymnasium_config("CartPol-v1"))


def test_only_gymnasium_imports_a_package_of_simulators() -> None:
    assert imports_simulator(gymnasium_config("CartPole-v1"))
    assert not imports_simulator(metaworld_config())
