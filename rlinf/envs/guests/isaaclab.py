"""Adapter for Isaac Lab, tasks of its manager-based environments in one batch (Mittal et al., 2023); unproven.

It follows the calls of Isaac Lab 2.3.0, and images and states are those of the published RLinf's stacking task. It was
tested against a fake and a transcript that were written from its sources, never with the simulator. The guest has Isaac
Sim, Isaac Lab and a GPU.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from .adapter_tools import as_array, as_image, import_simulator, pick, with_options

if TYPE_CHECKING:
    # Guests may run on Python 3.8, where these cannot be evaluated.
    Row = dict[str, Any]
    Array = np.ndarray[Any, Any]

PACKAGES = ("isaaclab", "isaacsim")

_CAMERAS = {"main_images": "table_cam", "wrist_images": "wrist_cam"}
_STATES = ("eef_pos", "eef_quat", "gripper_pos")
_SMALLEST_SINE = 1e-8
_INSTALL = "install Isaac Sim and Isaac Lab there, see https://isaac-sim.github.io/IsaacLab"


@with_options
def make_batch(
    *,
    num_envs: int,
    first_env: int,
    render: bool,
    group_size: int,
    max_episode_steps: int,
    task: str,
    task_description: str = "",
    task_module: str = "isaaclab_tasks",
    device: str = "cuda:0",
    group: str = "policy",
    cameras: dict[str, str] | None = None,
    image_size: int | None = None,
    states: list[str] | None = None,
    axis_angle: list[str] | None = None,
    success_term: str | None = "success",
) -> IsaacBatch:
    """Build all environments of a task.

    Args:
        num_envs: ``B``.
        first_env: Index of the first of them among all of the recipe; nothing depends on it.
        render: Whether a video is wanted; the cameras render anyway.
        group_size: Of the host; nothing depends on it.
        max_episode_steps: Of the host, which cuts episodes off; the task's own time limit does as well.
        task: Its name at Gymnasium, ``Isaac-Stack-Cube-Franka-IK-Rel-Visuomotor-v0`` for example.
        task_description: The sentence; without one observations have none.
        task_module: Module whose import registers the task.
        device: Where the simulation runs.
        group: Group of observations that is shown.
        cameras: Observation by the name that it has in a row; ``{}`` for a task without cameras.
        image_size: Height and width of the cameras of the same names; None leaves them as the task has them.
        states: Observations that ``states`` joins. A group that Isaac Lab has joined is taken whole.
        axis_angle: Those of them that are quaternions (w, x, y, z) and become axis times angle.
        success_term: The termination that is a success; None if there is none.
    """
    del first_env, render, group_size, max_episode_steps
    # Isaac Sim reads the command line, on which a guest has its descriptors.
    sys.argv = sys.argv[:1]
    shown = dict(_CAMERAS if cameras is None else cameras)
    launcher = import_simulator("isaaclab.app", _INSTALL).AppLauncher
    # Modules that know tasks can be imported when the simulator runs, and not before.
    app = launcher(headless=True, enable_cameras=bool(shown), device=device).app
    import_simulator(task_module, _INSTALL)
    settings = import_simulator("isaaclab_tasks.utils", _INSTALL).parse_env_cfg(task, device=device, num_envs=num_envs)
    settings.seed = 0
    for camera in shown.values() if image_size is not None else ():
        sensor = getattr(settings.scene, camera)
        sensor.height = sensor.width = image_size
    simulator = import_simulator("gymnasium", _INSTALL).make(task, cfg=settings).unwrapped
    return IsaacBatch(
        simulator,
        app,
        group=group,
        cameras=shown,
        states=list(states or _STATES),
        axis_angle=list(("eef_quat",) if axis_angle is None else axis_angle),
        success_term=success_term,
        sentence=task_description,
    )


class IsaacBatch:
    """All environments of a task, as ``rlinf.envs.guests.rows`` drives them; actions are the task's own.

    A row is reset by itself, with its seed, so that the seed names its start. Each reset renders all cameras.

    Args:
        simulator: Isaac Lab's environment.
        app: Isaac Sim.
        group: See ``make_batch``.
        cameras: See ``make_batch``.
        states: See ``make_batch``.
        axis_angle: See ``make_batch``.
        success_term: See ``make_batch``.
        sentence: See ``make_batch``.

    Raises:
        ValueError: The task is no manager-based one, or has no such termination.
    """

    def __init__(
        self,
        simulator: Any,
        app: Any,
        *,
        group: str,
        cameras: dict[str, str],
        states: list[str],
        axis_angle: list[str],
        success_term: str | None,
        sentence: str,
    ) -> None:
        self._env, self._app, self._group, self._cameras = simulator, app, group, cameras
        self._states, self._axis_angle, self._sentence = states, axis_angle, sentence
        self._torch = import_simulator("torch", _INSTALL)
        if not hasattr(simulator, "termination_manager"):
            raise ValueError(f"task: {type(simulator).__name__} is no manager-based environment; others are not driven")
        terms = simulator.termination_manager.active_terms
        if success_term is not None and success_term not in terms:
            raise ValueError(f"success_term: the task has no '{success_term}'; it has {', '.join(terms)}")
        self._success_term = success_term
        space = simulator.single_action_space
        self.action_low, self.action_high = np.array(space.low, np.float32), np.array(space.high, np.float32)
        self._rows: list[Row] = []
        self._leave_resets_to_host()

    def reset(self, rows: list[int], seeds: list[int]) -> list[Row]:
        """Start episodes in some environments."""
        for index, row in enumerate(rows):
            place = self._torch.tensor([row], device=self._env.device)
            obs = self._env.reset(seed=seeds[index], env_ids=place)[0]
        self._rows = self._split(obs)
        return [self._rows[row] for row in rows]

    def step(self, actions: Array, active: Array) -> tuple[list[Row], Array, Array, Array, Array | None]:
        """Execute one action in each environment; those that are not active get zeros."""
        taken = np.where(active[:, None], actions, 0.0).astype(np.float32)
        obs, rewards, terminated, truncated, _ = self._env.step(self._torch.from_numpy(taken).to(self._env.device))
        terminations = as_array(terminated)
        successes = None
        if self._success_term is not None:
            # A term says how the last episode ended, also after it.
            successes = as_array(self._env.termination_manager.get_term(self._success_term)) & terminations
        self._rows = self._split(obs)
        return self._rows, as_array(rewards), terminations, as_array(truncated), successes

    def render(self, row: int) -> Array | None:
        """Return the last main image of an environment."""
        return self._rows[row].get("main_images")

    def close(self) -> None:
        """End the simulator."""
        self._env.close()
        self._app.close()

    def _leave_resets_to_host(self) -> None:
        """Have ended environments stay as they are: their last observation is shown, and the host says what follows."""
        manager = self._env.termination_manager
        compute = manager.compute

        def compute_without_resets() -> Any:
            # The manager keeps what ended; what it returns is reset.
            return self._torch.zeros_like(compute())

        manager.compute = compute_without_resets

    def _split(self, obs: dict[str, Any]) -> list[Row]:
        seen = pick(obs, self._group, "group")
        columns = {shown: as_image(pick(seen, name, "cameras")) for shown, name in self._cameras.items()}
        columns["states"] = self._join(seen).astype(np.float32)
        rows = [{key: column[row] for key, column in columns.items()} for row in range(len(columns["states"]))]
        return [{**row, "task_descriptions": self._sentence} for row in rows] if self._sentence else rows

    def _join(self, seen: Any) -> Array:
        if not isinstance(seen, dict):
            return as_array(seen)
        parts = []
        for name in self._states:
            part = as_array(pick(seen, name, "states"))
            part = part.reshape(len(part), -1)
            parts.append(rotation_vectors(part) if name in self._axis_angle else part)
        return np.concatenate(parts, axis=1)


def rotation_vectors(quaternions: Array) -> Array:
    """Return rotations as axis times angle.

    Args:
        quaternions: [B, 4]; w, x, y, z.

    Returns:
        [B, 3] in radians, with angles in [0, pi].
    """
    turned = np.where(quaternions[:, :1] < 0, -quaternions, quaternions).astype(np.float64)
    sine = np.linalg.norm(turned[:, 1:], axis=1, keepdims=True)
    angle = 2 * np.arctan2(sine, turned[:, :1])
    vectors: Array = turned[:, 1:] * (angle / np.maximum(sine, _SMALLEST_SINE))
    return vectors
