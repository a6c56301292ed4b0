"""Checks of an environment's configuration that build nothing; the module itself loads neither torch nor a simulator.

A check is one line here: the type of environment, and a function called with its configuration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlinf.config.schema.env import EnvConfig, GymnasiumEnvConfig
from rlinf.envs.metaworld_tasks import tasks_of
from rlinf.registry import Registry

_checks: Registry[Callable[[Any], object]] = Registry("check of an environment")
_checks.register("metaworld", tasks_of)
_checks.register_lazy("gymnasium", "rlinf.envs.gymnasium_single:check_gymnasium")


def check_env_config(cfg: EnvConfig) -> None:
    """Check the names of tasks and of registered environments, where that is cheap.

    Imports Gymnasium, and the module that ``import_module`` names, for ``env_type: gymnasium``.

    Args:
        cfg: The ``env.train`` or ``env.eval`` section.

    Raises:
        ConfigError: Nothing has that name; the message has ``env.*`` for the section.
    """
    if cfg.env_type.lower() in _checks:
        _checks.get(cfg.env_type)(cfg)


def imports_simulator(cfg: EnvConfig) -> bool:
    """Return whether ``check_env_config`` imports a package of simulators."""
    return isinstance(cfg, GymnasiumEnvConfig)
