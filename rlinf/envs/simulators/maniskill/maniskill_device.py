"""Where ManiSkill simulates: the check that a GPU is there; loads PyTorch when that is called for alone."""

from __future__ import annotations

from rlinf.config.schema.env import ManiSkillEnvConfig
from rlinf.errors import ConfigError
from rlinf.utils.optional import require


def check_device(cfg: ManiSkillEnvConfig) -> None:
    """Check that this process has what ``sim_backend`` names; see ``EnvConfig.readiness_check``.

    Args:
        cfg: The section.

    Raises:
        ConfigError: It is ``gpu``, and PyTorch finds no CUDA device.
        MissingPackageError: PyTorch is not installed.
    """
    if cfg.sim_backend == "gpu" and not require("torch", needed_by="env.*.sim_backend=gpu").cuda.is_available():
        raise ConfigError(
            "env.*.sim_backend: received gpu; PyTorch finds no CUDA device here. Place env on GPUs "
            "(cluster.component_placement) with a PyTorch built for CUDA, or set it to cpu, where "
            "env.*.num_env_processes says how many processes step the environments."
        )
