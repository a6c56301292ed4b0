"""``env_type: maniskill``: the tasks of ManiSkill 3 on SAPIEN."""

from __future__ import annotations

from rlinf.config.schema.env import EnvConfig, ManiSkillEnvConfig
from rlinf.envs.base import VectorEnv
from rlinf.envs.simulators.maniskill.maniskill_batch import ManiSkillBatchEnv
from rlinf.envs.simulators.maniskill.maniskill_single import make_maniskill_env
from rlinf.envs.single_env_vector import SingleEnvVectorEnv


class ManiSkillEnv(SingleEnvVectorEnv):
    """ManiSkill tasks on CPU PhysX, one simulation each: ``states`` float32 [B, S] and ``task_descriptions``.

    With ``init_params.obs_mode: rgb`` the first camera's images are ``main_images`` uint8 [B, H, W, 3] and those of
    each other camera ``<its name>_images``; ``states`` then holds no poses of objects. ``show_objects`` shows them
    beside the images, as ``objects`` float32 [B, O], to critics and scripted policies.

    Args:
        cfg: Its configuration.
        num_envs: ``B``.
        first_env: Index of the first of them among all ``cfg.total_num_envs``.

    Raises:
        ConfigError: The id is not one of ManiSkill's (the closest one is suggested).
        EnvironmentFailure: The task could not be built, for want of a Vulkan driver for example.
        MissingPackageError: ManiSkill is not installed.
    """

    @classmethod
    def class_for(cls, cfg: EnvConfig) -> type[VectorEnv]:
        """See ``VectorEnv``: ``sim_backend: gpu`` is another class."""
        is_batch = isinstance(cfg, ManiSkillEnvConfig) and cfg.sim_backend == "gpu"
        return ManiSkillBatchEnv if is_batch else cls

    def __init__(self, cfg: ManiSkillEnvConfig, *, num_envs: int, first_env: int = 0) -> None:
        super().__init__(
            cfg,
            num_envs=num_envs,
            first_env=first_env,
            factory=make_maniskill_env,
            kwargs={
                "init_params": dict(cfg.init_params),
                "task_description": cfg.task_description,
                "show_objects": cfg.show_objects,
                "render_quality": cfg.render_quality,
            },
        )
