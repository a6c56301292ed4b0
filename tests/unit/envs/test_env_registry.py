"""The registry of environments."""

import pytest
from batch_env import BatchEnv

from rlinf.config.registries import envs
from rlinf.config.schema.env import EnvConfig
from rlinf.envs import SupportedEnvType, get_env_cls, register_env
from rlinf.envs.simulators.gymnasium_env import GymnasiumEnv
from rlinf.errors import RegistryError


def test_registering_extends_the_view_and_the_configuration() -> None:
    register_env("Toy_Registered", BatchEnv)
    assert get_env_cls("toy_registered") is BatchEnv
    assert SupportedEnvType("TOY_registered").value == "toy_registered"
    assert {"gymnasium", "metaworld", "toy_registered"} <= {member.value for member in SupportedEnvType}
    assert envs.configs.get("toy_registered") is EnvConfig
    with pytest.raises(RegistryError, match="already registered"):
        register_env("toy_registered", GymnasiumEnv)


def test_an_unknown_environment_suggests_the_closest() -> None:
    with pytest.raises(RegistryError, match="Did you mean 'metaworld'"):
        get_env_cls("metawrld")
    with pytest.raises(RegistryError, match="Did you mean 'metaworld'"):
        SupportedEnvType("metawrld")
