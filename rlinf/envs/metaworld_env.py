"""``env_type: metaworld``: the Sawyer arm of Meta-World, state observations with the task in words."""

from __future__ import annotations

from rlinf.config.schema.env import MetaWorldEnvConfig
from rlinf.envs.metaworld_single import make_metaworld_env
from rlinf.envs.metaworld_tasks import TASK_DESCRIPTIONS
from rlinf.envs.single_env_vector import SingleEnvVectorEnv
from rlinf.errors import ConfigError
from rlinf.registry import did_you_mean


class MetaWorldEnv(SingleEnvVectorEnv):
    """Meta-World's 50 tasks: ``states`` float32 [B, 39] (goal visible), ``task_descriptions`` list of ``B`` strings.

    Actions are 4 numbers in [-1, 1] (hand displacement, gripper). Object and goal positions are drawn anew at each
    reset from the reset-state id. An episode never terminates; success is recorded.

    Args:
        cfg: Its configuration.
        num_envs: ``B``.
        first_env: Index of the first of them among all ``cfg.total_num_envs``.

    Raises:
        ConfigError: The task is unknown.
        MissingPackageError: Meta-World is not installed.
    """

    def __init__(self, cfg: MetaWorldEnvConfig, *, num_envs: int, first_env: int = 0) -> None:
        if cfg.task_name not in TASK_DESCRIPTIONS:
            names = sorted(TASK_DESCRIPTIONS)
            raise ConfigError(
                f"env.*.task_name: Meta-World has no task '{cfg.task_name}'.{did_you_mean(cfg.task_name, names)} "
                f"Its tasks: {', '.join(names)}."
            )
        super().__init__(
            cfg,
            num_envs=num_envs,
            first_env=first_env,
            factory=make_metaworld_env,
            kwargs={"task_name": cfg.task_name},
        )
