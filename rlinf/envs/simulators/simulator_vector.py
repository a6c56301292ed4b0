"""Environments of simulators that are a simulation each, in this interpreter or in a guest's."""

from __future__ import annotations

from dataclasses import asdict

from rlinf.config.schema.env import SimulatorConfig
from rlinf.envs.simulators.guest_env import guest_arguments
from rlinf.envs.single_env_vector import SingleEnvVectorEnv
from rlinf.registry import import_target

_ADAPTER = "rlinf_simulator"
_OF_HOST = frozenset({"guest", "wrappers", "video_cfg", "data_collection"})
"""Keys that say nothing about a simulation."""


class SimulatorVectorEnv(SingleEnvVectorEnv):
    """Environments that ``SimulatorConfig.single_envs`` of a section builds, here or in its guest.

    Args:
        cfg: Its configuration.
        num_envs: ``B``.
        first_env: Index of the first of them among all ``cfg.total_num_envs``.

    Raises:
        ConfigError: As the function that builds them, or ``guest_setup``.
        EnvironmentFailure: A guest did not start, or an environment could not be built.
    """

    def __init__(self, cfg: SimulatorConfig, *, num_envs: int, first_env: int = 0) -> None:
        if cfg.guest is None:
            spec = import_target(cfg.single_envs)(cfg, num_envs=num_envs, first_env=first_env)
            arguments = {"factory": spec.factory, "kwargs": spec.kwargs, "row_kwargs": spec.row_kwargs}
        else:
            section = {name: value for name, value in asdict(cfg).items() if name not in _OF_HOST}
            arguments = guest_arguments(cfg, cfg.guest, _ADAPTER, {"section": section})
        super().__init__(cfg, num_envs=num_envs, first_env=first_env, **arguments)

    def versions(self) -> dict[str, str]:
        """See ``VectorEnv``; those of the guest's interpreter, where one has the simulator."""
        assert isinstance(self.cfg, SimulatorConfig)
        if self.cfg.guest is None:
            return super().versions()
        assert self.pool is not None
        return self.pool.versions()
