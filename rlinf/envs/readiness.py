"""Checks of an environment's configuration that build nothing; the module itself loads neither torch nor a simulator.

The check of an environment is the function that ``EnvConfig.readiness_check`` of its dataclass names.
"""

from __future__ import annotations

from rlinf.config.schema.env import EnvConfig, GymnasiumEnvConfig, ManiSkillEnvConfig, SimulatorConfig
from rlinf.registry import import_target


def check_env_config(cfg: EnvConfig) -> None:
    """Check the names of tasks and of registered environments, and devices that they need, where that is cheap.

    Imports Gymnasium, and the module that ``import_module`` names, for ``env_type: gymnasium``; and PyTorch for
    ``env_type: maniskill`` on a GPU.

    Args:
        cfg: The ``env.train`` or ``env.eval`` section.

    Raises:
        ConfigError: Nothing has that name, or the device is not there; the message has ``env.*`` for the section.
    """
    if cfg.readiness_check is not None:
        import_target(cfg.readiness_check)(cfg)
    if isinstance(cfg, SimulatorConfig) and cfg.guest is not None:
        import_target(cfg.guest_check)(cfg)


def imports_simulator(cfg: EnvConfig) -> bool:
    """Return whether ``check_env_config`` imports a package of simulators, or PyTorch to look for a GPU."""
    return isinstance(cfg, GymnasiumEnvConfig) or (isinstance(cfg, ManiSkillEnvConfig) and cfg.sim_backend == "gpu")
