"""One Meta-World task as a ``SingleEnv``; imports no torch, and Meta-World only when one is built."""

from __future__ import annotations

import os
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from rlinf.envs.raw_chunk import Frame
from rlinf.envs.simulators.metaworld_rotation import use_plain_rotation
from rlinf.envs.simulators.metaworld_tasks import TASK_DESCRIPTIONS
from rlinf.envs.single_env import SingleStep
from rlinf.utils.optional import require

# A multiple of 16, which video encoders want; software rendering takes time in proportion to the pixels.
_FRAME_SIZE = 256
_CAMERA = "corner2"
# Time limits are VectorEnv's; Meta-World's own would end episodes after 500 steps.
_NO_LIMIT = 2**62
# Meta-World's reset runs the reset of the model twice (about 9 ms instead of 5). In these tasks the first pass moves
# bodies that the second reads, so both are needed; in the others the second alone gives the same state, bit for bit.
_TASKS_RESET_TWICE = frozenset(
    {
        "box-close-v3",
        "dial-turn-v3",
        "disassemble-v3",
        "door-lock-v3",
        "door-unlock-v3",
        "drawer-open-v3",
        "faucet-open-v3",
        "handle-press-v3",
        "handle-pull-v3",
        "lever-pull-v3",
        "peg-unplug-side-v3",
        "window-close-v3",
        "window-open-v3",
    }
)


class MetaWorldSingleEnv:
    """One task with the goal in the observation, as the MT benchmarks have it, and no limit on distinct goals.

    Args:
        task_name: For example ``reach-v3``.
        task_code: Numbers behind the observation that tell the task from others, float32 [T].
        render: Whether it has to render images; without, nothing of OpenGL is loaded.
    """

    def __init__(self, task_name: str, *, task_code: npt.NDArray[np.float32], render: bool) -> None:
        if render and "DISPLAY" not in os.environ:
            # MuJoCo would try GLFW first, which cannot work without a display; read when the first image is rendered.
            os.environ.setdefault("MUJOCO_GL", "egl")
        env_dict = require(
            "metaworld.env_dict",
            needed_by="env_type=metaworld",
        )
        from gymnasium.envs.mujoco import MujocoEnv

        options: dict[str, Any] = {}
        if render:
            options = {"render_mode": "rgb_array", "camera_name": _CAMERA, "width": _FRAME_SIZE, "height": _FRAME_SIZE}
        env = env_dict.ALL_V3_ENVIRONMENTS[task_name](**options)
        use_plain_rotation(env)
        # What set_task() would set, except that positions come from the environment's own generator at each reset
        # rather than taken from one of 50 stored tasks.
        env._set_task_called = True
        env._freeze_rand_vec = False
        env.seeded_rand_vec = True
        env._partially_observable = False
        env.max_path_length = _NO_LIMIT
        # Computed while the goal was still hidden: it would clip the goal to zero.
        env.__dict__.pop("sawyer_observation_space", None)
        self._env = env
        self._base_reset = MujocoEnv.reset
        self._reset_twice = task_name in _TASKS_RESET_TWICE
        self._description = TASK_DESCRIPTIONS[task_name]
        self._task_code = task_code
        size = env.sawyer_observation_space.shape[0] + task_code.size
        self.action_space: gymnasium.Space[Any] = env.action_space
        self.observation_space = gymnasium.spaces.Dict(
            {
                "states": gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32),
                "task_descriptions": gymnasium.spaces.Text(max_length=256),
            }
        )

    def reset(self, seed: int) -> Any:
        """Start an episode whose object and goal positions are sampled from ``seed``; return the observation."""
        env = self._env
        # env.reset(seed=...) ignores its argument.
        env.np_random = np.random.default_rng(seed)
        if self._reset_twice:
            return env.reset()[0]
        env.curr_path_length = 0
        obs, _ = self._base_reset(env)
        # The observation holds the previous frame and the present one; at a reset they are the same.
        env._prev_obs = obs[:18].copy()
        obs[18:36] = env._prev_obs
        return obs

    def step(self, action: Any) -> SingleStep:
        """Execute one action."""
        obs, reward, terminated, truncated, info = self._env.step(action)
        return obs, float(reward), bool(terminated), bool(truncated), bool(info["success"])

    def observe(self, raw: Any) -> dict[str, Any]:
        """Return ``states`` float32 [39 + T] and ``task_descriptions``."""
        states = np.concatenate([raw.astype(np.float32), self._task_code])
        return {"states": states, "task_descriptions": self._description}

    def render(self) -> Frame | None:
        """Return the present image, uint8 [H, W, 3]."""
        # Meta-World's corner camera is mounted upside down.
        frame: Frame = np.ascontiguousarray(self._env.render()[::-1])
        return frame

    def close(self) -> None:
        """Free the simulator."""
        self._env.close()


def make_metaworld_env(*, render: bool, task_name: str, task_number: int = 0, num_tasks: int = 1) -> MetaWorldSingleEnv:
    """Build one environment.

    Args:
        render: Whether it has to render images.
        task_name: One of the tasks in ``TASK_DESCRIPTIONS``.
        task_number: Its place among the tasks that are learned together, from 0.
        num_tasks: How many those are; of several the observation says which one it is of.

    Raises:
        MissingPackageError: Meta-World is not installed.
    """
    code = np.eye(num_tasks, dtype=np.float32)[task_number] if num_tasks > 1 else np.zeros(0, np.float32)
    return MetaWorldSingleEnv(task_name, task_code=code, render=render)
