"""``env_type: guest``: a simulator in an interpreter of its own, which needs nothing of this one's packages."""

from __future__ import annotations

import os
import shutil
from functools import partial
from typing import Any

from rlinf.config.schema.env import EnvConfig, GuestEnvConfig, GuestProcessConfig
from rlinf.envs.guest_process import PYTHON_VARIABLE, GuestProcess, GuestSetup, installed_versions, made_by_guest
from rlinf.envs.single_env_vector import SingleEnvVectorEnv
from rlinf.errors import ConfigError


class GuestEnv(SingleEnvVectorEnv):
    """Environments that a guest process steps, through an adapter for its simulator.

    What observations and actions are is the adapter's to say. A chunk is one message to each guest, and one back.

    Args:
        cfg: Its configuration.
        num_envs: ``B``.
        first_env: Index of the first of them among all ``cfg.total_num_envs``.

    Raises:
        ConfigError: There is no interpreter.
        EnvironmentFailure: A guest did not start, or its simulator failed.
    """

    def __init__(self, cfg: GuestEnvConfig, *, num_envs: int, first_env: int = 0) -> None:
        arguments = guest_arguments(cfg, cfg.adapter, cfg.init_params)
        super().__init__(cfg, num_envs=num_envs, first_env=first_env, **arguments)

    def versions(self) -> dict[str, str]:
        """See ``VectorEnv``; those of the guest's interpreter."""
        assert isinstance(self.cfg, GuestEnvConfig)
        return installed_versions(guest_setup(self.cfg, self.cfg.adapter), self.cfg.env_type)


def guest_arguments(cfg: GuestProcessConfig, adapter: str, init_params: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``SingleEnvVectorEnv`` that have guests step the environments.

    Args:
        cfg: The section.
        adapter: Module that drives the simulator.
        init_params: Its arguments.

    Raises:
        ConfigError: There is no interpreter.
    """
    return {
        "factory": made_by_guest,
        "kwargs": {
            "init_params": init_params,
            "episode": {"group_size": cfg.group_size, "max_episode_steps": cfg.max_episode_steps},
        },
        "process": partial(GuestProcess, setup=guest_setup(cfg, adapter)),
        "build_timeout_seconds": float(cfg.build_timeout_seconds),
    }


def guest_setup(cfg: GuestProcessConfig, adapter: str) -> GuestSetup:
    """Return how to start a section's guests.

    Args:
        cfg: The section.
        adapter: Module that drives the simulator.

    Raises:
        ConfigError: There is no interpreter.
    """
    return GuestSetup(
        python=find_python(cfg),
        adapter=adapter,
        env_vars=cfg.env_vars,
        startup_timeout_seconds=cfg.startup_timeout_seconds,
    )


def find_python(cfg: GuestProcessConfig) -> str:
    """Return the interpreter of a section's guests.

    Raises:
        ConfigError: None is named, or the named one is not there.
    """
    named = cfg.python or os.environ.get(PYTHON_VARIABLE)
    found = shutil.which(named) if named else None
    if found is None:
        received = f"'{named}', which is no executable file" if named else f"null, and {PYTHON_VARIABLE} is not set"
        raise ConfigError(
            f"env.*.python: received {received}. Give the Python of the environment in which the simulator is "
            "installed, for example /opt/robotwin/bin/python."
        )
    return found


def check_guest_config(cfg: EnvConfig) -> None:
    """Check that there is an interpreter; see ``EnvConfig.readiness_check``.

    Raises:
        ConfigError: There is none.
    """
    assert isinstance(cfg, GuestProcessConfig)
    find_python(cfg)
