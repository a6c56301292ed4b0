"""``env_type: libero``: the suites of LIBERO, from their published start states."""

from __future__ import annotations

from rlinf.config.schema.env import LiberoEnvConfig
from rlinf.envs.simulators.libero.libero_assets import libero_versions
from rlinf.envs.simulators.libero.libero_single import make_libero_env
from rlinf.envs.simulators.libero.libero_starts import check_libero, libero_starts
from rlinf.envs.single_env_vector import SingleEnvVectorEnv


class LiberoEnv(SingleEnvVectorEnv):
    """robosuite: ``states`` float32 [B, 8], ``main_images`` and ``wrist_images`` uint8 [B, H, W, 3], sentences.

    Actions are 7 numbers in [-1, 1]: motion and rotation of the hand, and the gripper, which -1 opens. Success is the
    task's own predicate and ends the episode; the reward is 1 then and 0 before. A reset-state id names a task and one
    of its start states (``LiberoStarts``); with ``use_ordered_reset_state_ids`` and as many episodes as there are start
    states, an evaluation plays each once.

    Args:
        cfg: Its configuration.
        num_envs: ``B``.
        first_env: Index of the first of them among all ``cfg.total_num_envs``.

    Raises:
        ConfigError: A task or the assets are not there.
        MissingPackageError: LIBERO is not installed.
    """

    def __init__(self, cfg: LiberoEnvConfig, *, num_envs: int, first_env: int = 0) -> None:
        check_libero(cfg)
        starts = libero_starts(cfg)
        groups = [(first_env + row) // cfg.group_size for row in range(num_envs)]
        super().__init__(
            cfg,
            num_envs=num_envs,
            first_env=first_env,
            factory=make_libero_env,
            kwargs={
                "suite": cfg.task_suite_name,
                "starts": starts,
                "num_settle_steps": cfg.num_settle_steps,
                "opens_gripper": cfg.reset_gripper_open,
                "image_size": cfg.image_size,
                "is_light": cfg.render_quality == "light",
                "shows_objects": cfg.show_objects,
                "disturbance": cfg.disturbance,
                "assets_path": cfg.assets_path,
            },
            row_kwargs=[{"own_task": starts.own_task(group, cfg.num_groups)} for group in groups],
        )

    def versions(self) -> dict[str, str]:
        """See ``VectorEnv``; also whose assets there are."""
        assert isinstance(self.cfg, LiberoEnvConfig)
        return super().versions() | libero_versions(self.cfg.assets_path)
