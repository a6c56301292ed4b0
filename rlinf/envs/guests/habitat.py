"""Adapter for Habitat, which follows instructions in scanned houses (VLN-CE, Krantz et al., 2004.02857); unproven.

It follows the calls of habitat-lab 0.3.3 (commit 0fb6f43f), with the numbers of VLN-CE (commit 729d141b): success is to
stop within 3 m of the goal. It was tested against a fake and a transcript that were written from these sources, never
with the simulator. The guest has habitat-sim, habitat-lab, Matterport's scenes and the episodes of R2R. Simulators of
one process share an OpenGL context: ``env.*.num_env_processes`` gives each environment a guest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .adapter_tools import as_array, as_image, import_simulator, with_options

if TYPE_CHECKING:
    # Guests may run on Python 3.8, where these cannot be evaluated.
    Row = dict[str, Any]
    Array = np.ndarray[Any, Any]

PACKAGES = ("habitat-lab", "habitat-sim")

ACTIONS = ("stop", "move_forward", "turn_left", "turn_right")
"""What the numbers of an action stand for, in the order of VLN-CE: stop, 0.25 m ahead, 15 degrees to either side."""
SUCCESS_METRES = 3.0
"""How near to the goal an agent has to stop, in VLN-CE."""

_SETTINGS = (
    # When an episode is cut off is the host's to say; Habitat refuses actions after it.
    "habitat.environment.max_episode_steps=0",
    "habitat.environment.max_episode_seconds=0",
    f"habitat.task.measurements.success.success_distance={SUCCESS_METRES}",
)
_INSTALL = "install habitat-sim and https://github.com/facebookresearch/habitat-lab there"


@with_options
def make(
    *,
    render: bool,
    config_path: str = "benchmark/nav/vln_r2r.yaml",
    overrides: list[str] | None = None,
    show_depth: bool = True,
    success_reward: float = 10.0,
    step_reward: float = -0.01,
    weight_by_path: bool = False,
) -> NavigationEnv:
    """Build one environment.

    Args:
        render: Whether a video is wanted; the camera renders anyway.
        config_path: Habitat's configuration: a file, or one that it brings along.
        overrides: Further settings of it, ``habitat.dataset.split=val_unseen`` for example.
        show_depth: Whether rows have ``depth_images``.
        success_reward: For a stop near the goal.
        step_reward: For every action.
        weight_by_path: Whether ``success_reward`` is multiplied by SPL, the success weighted by path length.
    """
    del render
    habitat = import_simulator("habitat", _INSTALL)
    config = habitat.get_config(config_path, [*_SETTINGS, *(overrides or [])])
    return NavigationEnv(
        habitat.Env(config=config),
        show_depth=show_depth,
        success_reward=success_reward,
        step_reward=step_reward,
        weight_by_path=weight_by_path,
    )


class NavigationEnv:
    """One house, as ``rlinf.envs.guests.rows`` drives it.

    An action has a number for each of ``ACTIONS``; the greatest is executed, the first of equal ones. The reward is
    how much nearer the goal is, in metres along the floor, with ``success_reward`` and ``step_reward``. To stop
    terminates. A seed names an episode of the data set: ``seed % number of episodes``; another scene is loaded anew.

    Args:
        simulator: Habitat's environment.
        show_depth: See ``make``.
        success_reward: See ``make``.
        step_reward: See ``make``.
        weight_by_path: See ``make``.
    """

    action_low = np.full(len(ACTIONS), -1.0, np.float32)
    action_high = np.full(len(ACTIONS), 1.0, np.float32)

    def __init__(
        self,
        simulator: Any,
        *,
        show_depth: bool,
        success_reward: float,
        step_reward: float,
        weight_by_path: bool,
    ) -> None:
        self._env, self._show_depth, self._step_reward = simulator, show_depth, step_reward
        self._success_reward, self._success_metric = success_reward, "spl" if weight_by_path else "success"
        self._distance = 0.0
        self._row: Row = {}

    def reset(self, seed: int) -> Row:
        """Start the episode that a seed names."""
        self._env.seed(seed)
        self._env.current_episode = self._env.episodes[seed % len(self._env.episodes)]
        obs = self._env.reset()
        self._distance = float(self._env.get_metrics()["distance_to_goal"])
        return self._see(obs)

    def step(self, action: Array) -> tuple[Row, float, bool, bool, bool]:
        """Execute one action; after a stop nothing moves."""
        if self._env.episode_over:
            return self._row, 0.0, True, False, bool(self._env.get_metrics()["success"])
        obs = self._env.step(ACTIONS[int(np.argmax(action))])
        metrics = self._env.get_metrics()
        distance = float(metrics["distance_to_goal"])
        # Off the floor's mesh there is no way, and the distance is infinite.
        nearer = self._distance - distance if np.isfinite(self._distance) and np.isfinite(distance) else 0.0
        self._distance = distance
        reward = nearer + self._step_reward + self._success_reward * float(metrics[self._success_metric])
        return self._see(obs), reward, bool(self._env.episode_over), False, bool(metrics["success"])

    def render(self) -> Array:
        """Return the camera's last image."""
        image: Array = self._row["main_images"]
        return image

    def close(self) -> None:
        """Free the simulator."""
        self._env.close()

    def _see(self, obs: Row) -> Row:
        self._row = {"main_images": as_image(obs["rgb"]), "task_descriptions": str(obs["instruction"]["text"])}
        if self._show_depth:
            self._row["depth_images"] = as_array(obs["depth"]).astype(np.float32)
        return self._row
