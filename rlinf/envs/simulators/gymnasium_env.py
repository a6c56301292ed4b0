"""``env_type: gymnasium``: any registered Gymnasium id with a Box or Discrete action space."""

from __future__ import annotations

from rlinf.config.schema.env import GymnasiumEnvConfig
from rlinf.envs.simulators.gymnasium_single import make_gymnasium_env
from rlinf.envs.single_env_vector import SingleEnvVectorEnv


class GymnasiumEnv(SingleEnvVectorEnv):
    """Registered Gymnasium environments.

    An observation that is an image, a ``Box`` of uint8 [H, W, 3], becomes ``main_images`` uint8 [B, H, W, 3]; one of
    any other space is flattened into ``states`` float32 [B, S].

    Args:
        cfg: Its configuration.
        num_envs: ``B``.
        first_env: Index of the first of them among all ``cfg.total_num_envs``.

    Raises:
        ConfigError: The id is not registered (the closest one is suggested), or ``import_module`` cannot be imported.
        EnvironmentFailure: Gymnasium could not build the environment.
    """

    def __init__(self, cfg: GymnasiumEnvConfig, *, num_envs: int, first_env: int = 0) -> None:
        super().__init__(
            cfg,
            num_envs=num_envs,
            first_env=first_env,
            factory=make_gymnasium_env,
            kwargs={
                # In place of the limit that the id is registered with, which may end episodes earlier.
                "init_params": {**cfg.init_params, "max_episode_steps": cfg.max_episode_steps},
                "import_module": cfg.import_module,
                "success_key": cfg.success_key,
            },
        )
