"""``env_type: maniskill`` with ``sim_backend: gpu``: all environments of an env worker's stage in one simulation."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np

from rlinf.config.schema.env import ManiSkillEnvConfig
from rlinf.envs.base import StepResult, VectorEnv
from rlinf.envs.raw_chunk import BoolArray, Frame, IntArray, RawObservation, take_rows
from rlinf.envs.simulators.maniskill.maniskill_build import build_task, space_of
from rlinf.envs.simulators.maniskill.maniskill_device import check_device
from rlinf.envs.simulators.maniskill.maniskill_rows import RowResets


class ManiSkillBatchEnv(VectorEnv):
    """ManiSkill tasks stepped together on the worker's GPU; it shows what ``ManiSkillEnv`` shows.

    Start states follow from seeds as on the CPU, by another generator where tasks sample of PyTorch's: the same seed
    names another state there. PhysX on a GPU does not promise the same bits when actions are executed again, so a
    resumed run begins new episodes.

    Args:
        cfg: Its configuration.
        num_envs: ``B``.
        first_env: Index of the first of them among all ``cfg.total_num_envs``.

    Raises:
        ConfigError: There is no CUDA device, or as ``build_task``.
        EnvironmentFailure: The task could not be built.
        MissingPackageError: ManiSkill is not installed.
    """

    cfg: ManiSkillEnvConfig
    restored_by = "nothing"

    def __init__(self, cfg: ManiSkillEnvConfig, *, num_envs: int, first_env: int = 0) -> None:
        super().__init__(cfg, num_envs=num_envs, first_env=first_env)
        check_device(cfg)
        self._task = build_task(
            num_envs=num_envs,
            sim_backend=cfg.sim_backend,
            render=bool(self._recorder.rows),
            init_params=dict(cfg.init_params),
            task_description=cfg.task_description,
            show_objects=cfg.show_objects,
            render_quality=cfg.render_quality,
        )
        self._resets = RowResets(self._task.env)
        self.action_space: gymnasium.Space[Any] = self._task.env.single_action_space
        rows = np.arange(num_envs)
        self.observation_space = space_of(self._task.observe(self._resets.reset(rows, np.zeros_like(rows))))

    def reset_idx(self, env_ids: IntArray, seeds: IntArray) -> RawObservation:
        """See ``VectorEnv``."""
        return take_rows(self._task.observe(self._resets.reset(env_ids, seeds)), env_ids)

    def step(self, actions: Any, active: BoolArray) -> StepResult:
        """See ``VectorEnv``: rows at rest get zeros, and images are rendered where they are looked at."""
        given = actions.copy()
        given[~active] = 0
        raw, rewards, terminations, truncations, info = self._task.env.step(given)
        return StepResult(
            obs=partial(self._task.observe, raw),
            rewards=rewards,
            terminations=terminations,
            truncations=truncations,
            infos={"success": info["success"]} if "success" in info else {},
        )

    def render_idx(self, env_ids: list[int]) -> list[Frame]:
        """See ``VectorEnv``."""
        images = self._task.env.render()
        return [images[row].cpu().numpy() for row in env_ids]

    def _close(self) -> None:
        """See ``VectorEnv``."""
        self._task.env.close()
