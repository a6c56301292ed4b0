"""The registry of environments: built-ins are imported on first use, plug-ins register in the same table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlinf.config.registries import envs
from rlinf.config.schema.env import EnvConfig
from rlinf.errors import ConfigError
from rlinf.utils.enumeration import RegistryEnum

if TYPE_CHECKING:
    from rlinf.envs.base import VectorEnv


def register_env(name: str, cls: type[VectorEnv], config: type[EnvConfig] | None = None) -> None:
    """Make an environment available as ``env_type: <name>``.

    Args:
        name: What recipes write; stored in lower case.
        cls: The environment.
        config: The dataclass of its keys; None when it has none besides those of ``EnvConfig``.

    Raises:
        RegistryError: The name is taken by another environment.
    """
    envs.register(name, cls, config=config or EnvConfig)


def get_env_cls(env_type: str) -> type[VectorEnv]:
    """Return the class registered as ``env_type``.

    Raises:
        RegistryError: None is; the message lists the names and the closest one.
        MissingPackageError: It needs an optional package that is not installed.
    """
    cls: type[VectorEnv] = envs.get(env_type)
    return cls


def make_vector_env(
    cfg: EnvConfig, *, num_envs: int, first_env: int = 0, hardware: Sequence[Mapping[str, Any]] = ()
) -> VectorEnv:
    """Build the environments ``first_env .. first_env + num_envs - 1`` of the ``cfg.total_num_envs`` of a recipe.

    Args:
        cfg: The ``env.train`` or ``env.eval`` section.
        num_envs: Environments of this instance (``B``).
        first_env: Index of its first environment among all of them.
        hardware: What the worker was placed on (``Worker.hardware_infos``); an environment with a ``hardware_type`` is
            given what is of its type.

    Raises:
        RegistryError: ``cfg.env_type`` is unknown.
        ConfigError: The configuration cannot be run.
        MissingPackageError: The simulator is not installed.
        EnvironmentFailure: The simulator failed to start.
    """
    cls = get_env_cls(cfg.env_type).class_for(cfg)
    own: dict[str, Any] = {}
    if cls.hardware_type is not None:
        own["hardware"] = [info for info in hardware if str(info["type"]).lower() == cls.hardware_type.lower()]
    env = cls(cfg, num_envs=num_envs, first_env=first_env, **own)
    try:
        _ = env.shown_space  # a wrapper that does not suit what the environment shows says so here
    except ConfigError:
        env.close()
        raise
    return env


SupportedEnvType = RegistryEnum("SupportedEnvType", envs)
"""The registered names, used like an ``Enum``: ``SupportedEnvType("metaworld")``, iteration, ``in``."""
