"""One ManiSkill task on the CPU as a ``SingleEnv``; imports neither torch nor ManiSkill until one is built."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from rlinf.config.schema.env import RenderQuality
from rlinf.envs.raw_chunk import Frame
from rlinf.envs.simulators.maniskill.maniskill_build import ManiSkillTask, build_task, space_of
from rlinf.envs.simulators.maniskill.maniskill_looks import untouched
from rlinf.envs.single_env import SingleStep

_ONLY_ROW = np.zeros(1, np.int64)


class ManiSkillSingleEnv:
    """One simulation on CPU PhysX.

    Args:
        task: A simulation of one environment.
    """

    def __init__(self, task: ManiSkillTask) -> None:
        self._task = task
        self._env = task.env
        self.action_space: gymnasium.Space[Any] = task.env.single_action_space
        self.observation_space = space_of(task.observe(self.reset(0)))

    def reset(self, seed: int) -> Any:
        """Start the episode that ``seed`` selects; return the observation."""
        with untouched(self._env, _ONLY_ROW):
            return self._env.reset(seed=seed)[0]

    def step(self, action: Any) -> SingleStep:
        """Execute one action."""
        obs, reward, terminated, truncated, info = self._env.step(action)
        success = info.get("success")
        return obs, float(reward), bool(terminated), bool(truncated), None if success is None else bool(success)

    def observe(self, raw: Any) -> dict[str, Any]:
        """Return the only row of ``ManiSkillTask.observe``."""
        return {key: value[0] for key, value in self._task.observe(raw).items()}

    def render(self) -> Frame | None:
        """Return the present image, uint8 [H, W, 3]."""
        frame: Frame = self._env.render()[0].cpu().numpy()
        return frame

    def close(self) -> None:
        """Free the simulator."""
        self._env.close()


def make_maniskill_env(
    *,
    render: bool,
    init_params: dict[str, Any],
    task_description: str | None,
    show_objects: bool,
    render_quality: RenderQuality | None,
) -> ManiSkillSingleEnv:
    """Build one task on the CPU; arguments and errors are those of ``build_task``."""
    return ManiSkillSingleEnv(
        build_task(
            num_envs=1,
            sim_backend="cpu",
            render=render,
            init_params=init_params,
            task_description=task_description,
            show_objects=show_objects,
            render_quality=render_quality,
        )
    )
