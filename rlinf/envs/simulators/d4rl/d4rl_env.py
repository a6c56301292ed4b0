"""``env_type: d4rl``: the environments of D4RL's recordings, with normalised scores."""

from __future__ import annotations

from dataclasses import replace

from rlinf.config.schema.env import D4RLEnvConfig
from rlinf.envs.simulators.d4rl.d4rl_pen import PenSingleEnv
from rlinf.envs.simulators.d4rl.d4rl_tasks import environment_id, environment_module, reference_returns
from rlinf.envs.simulators.gymnasium_single import GymnasiumSingleEnv, check_registered, make_gymnasium_env
from rlinf.envs.single_env_vector import SingleEnvVectorEnv


class D4RLEnv(SingleEnvVectorEnv):
    """The Gymnasium environment that a data set of D4RL was recorded in.

    Args:
        cfg: Its configuration.
        num_envs: ``B``.
        first_env: Index of the first of them among all ``cfg.total_num_envs``.

    Raises:
        ConfigError: D4RL has no such task, or Gymnasium no such environment.
        EnvironmentFailure: Gymnasium could not build the environment.
    """

    def __init__(self, cfg: D4RLEnvConfig, *, num_envs: int, first_env: int = 0) -> None:
        init_params = {"id": environment_id(cfg.task_name), "max_episode_steps": cfg.max_episode_steps}
        reference = cfg.reference_returns or list(reference_returns(cfg.task_name))
        super().__init__(
            replace(cfg, reference_returns=reference),
            num_envs=num_envs,
            first_env=first_env,
            factory=make_gymnasium_env,
            kwargs={
                "init_params": init_params,
                "import_module": environment_module(cfg.task_name),
                "success_key": "success",
                "kind": PenSingleEnv if cfg.task_name.startswith("pen-") else GymnasiumSingleEnv,
            },
        )


def check_task(cfg: D4RLEnvConfig) -> None:
    """See ``environment_id`` and ``check_registered``."""
    check_registered({"id": environment_id(cfg.task_name)}, environment_module(cfg.task_name))
