"""``env_type: guest``: a simulator in an interpreter of its own, which needs nothing of this one's packages."""

from __future__ import annotations

from functools import partial
from typing import Any

from rlinf.config.schema.env import EnvConfig, GuestConfig, GuestEnvConfig
from rlinf.envs.guest_process import made_by_guest
from rlinf.envs.guest_remote import installed_versions, start_guest
from rlinf.envs.guest_settings import guest_setup
from rlinf.envs.single_env_vector import SingleEnvVectorEnv


class GuestEnv(SingleEnvVectorEnv):
    """Environments that a guest process steps, through an adapter for its simulator.

    What observations and actions are is the adapter's to say. A chunk is one message to each guest, and one back.

    Args:
        cfg: Its configuration.
        num_envs: ``B``.
        first_env: Index of the first of them among all ``cfg.total_num_envs``.

    Raises:
        ConfigError: As ``guest_setup``.
        EnvironmentFailure: A guest did not start, or its simulator failed.
    """

    def __init__(self, cfg: GuestEnvConfig, *, num_envs: int, first_env: int = 0) -> None:
        arguments = guest_arguments(cfg, cfg.guest, cfg.adapter, cfg.init_params)
        super().__init__(cfg, num_envs=num_envs, first_env=first_env, **arguments)

    def versions(self) -> dict[str, str]:
        """See ``VectorEnv``; those of the guest's interpreter."""
        assert isinstance(self.cfg, GuestEnvConfig)
        return installed_versions(guest_setup(self.cfg.guest, self.cfg.adapter), self.cfg.env_type)


def guest_arguments(cfg: EnvConfig, guest: GuestConfig, adapter: str, init_params: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``SingleEnvVectorEnv`` that have guests step the environments.

    Args:
        cfg: The section.
        guest: Its ``guest``.
        adapter: Module that drives the simulator.
        init_params: Its arguments.

    Raises:
        ConfigError: As ``guest_setup``.
    """
    return {
        "factory": made_by_guest,
        "kwargs": {
            "init_params": init_params,
            "episode": {"group_size": cfg.group_size, "max_episode_steps": cfg.max_episode_steps},
        },
        "process": partial(start_guest, setup=guest_setup(guest, adapter)),
        "build_timeout_seconds": float(guest.build_timeout_seconds),
    }
