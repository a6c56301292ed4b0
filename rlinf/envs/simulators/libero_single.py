"""One LIBERO environment as a ``SingleEnv``; imports no torch itself, and LIBERO only when one is built.

LIBERO (Liu et al., arXiv 2306.03310) has suites of tasks; each task has a sentence, 50 published start states and a
predicate of success.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from rlinf.envs.raw_chunk import Frame
from rlinf.envs.simulators.libero_assets import find_assets, load_suite
from rlinf.envs.simulators.libero_starts import LiberoStarts
from rlinf.envs.single_env import SingleStep
from rlinf.utils.optional import require

_SEED = 0
"""Fixtures are placed at random when a scene is built; the published evaluation seeds it so."""
_CAMERAS = {"main_images": "agentview", "wrist_images": "robot0_eye_in_hand"}
_VIDEO_SIZE = 256
_NO_LIMIT = 2**62
_PUSH_ACTIONS = 6
"""How long a push lasts: the hand comes up to 6 cm off its way."""
_COLLISION_GEOMS = 0
"""MuJoCo's group of the geometry that robosuite does not render."""


class LiberoSingleEnv:
    """A task's scene, which changes where another task is to be played.

    Args:
        suite: For example ``libero_object``.
        starts: Start states that seeds name.
        own_task: Place among ``starts.tasks`` of the one that it plays; None plays the one that the seed names.
        num_settle_steps: Actions without a motion after a reset.
        opens_gripper: Whether they open the gripper.
        image_size: Height and width of both cameras' images.
        is_light: Render without shadow maps and multisampling.
        shows_objects: Whether observations have ``objects``.
        disturbance: Probability that an action begins a push: it and the next five have one random motion.
        assets_path: LIBERO's folder of that name; None is the installed one.
    """

    def __init__(
        self,
        *,
        suite: str,
        starts: LiberoStarts,
        own_task: int | None,
        num_settle_steps: int,
        opens_gripper: bool,
        image_size: int,
        is_light: bool,
        shows_objects: bool,
        disturbance: float,
        assets_path: str | None,
    ) -> None:
        self._mujoco: Any = require("mujoco", needed_by="env_type=libero")
        self._suite = load_suite(suite, find_assets(assets_path))
        self._starts, self._own_task = starts, own_task
        self._num_settle_steps = num_settle_steps
        self._rest = np.array([0.0] * 6 + [-1.0 if opens_gripper else 0.0])
        self._image_size, self._is_light, self._shows_objects = image_size, is_light, shows_objects
        self._disturbance, self._generator = disturbance, np.random.default_rng(0)
        self._pushes: list[npt.NDArray[np.float64]] = []
        self._task = -1
        self._env: Any = None
        self._states: npt.NDArray[np.float64] = np.zeros((0, 0))
        self._renderers: dict[int, Any] = {}
        self._view: Any = self._mujoco.MjvOption()
        self._view.geomgroup[_COLLISION_GEOMS] = 0
        self.action_space: gymnasium.Space[Any] = gymnasium.spaces.Box(-1.0, 1.0, (7,), np.float32)
        image = gymnasium.spaces.Box(0, 255, (image_size, image_size, 3), np.uint8)
        row: dict[str, gymnasium.Space[Any]] = {
            "states": gymnasium.spaces.Box(-np.inf, np.inf, (8,), np.float32),
            **dict.fromkeys(_CAMERAS, image),
            "task_descriptions": gymnasium.spaces.Text(max_length=256),
        }
        if shows_objects:
            row["objects"] = gymnasium.spaces.Box(-np.inf, np.inf, (7,), np.float32)
        self.observation_space = gymnasium.spaces.Dict(row)

    def reset(self, seed: int) -> Any:
        """Start from the published state that ``seed`` names, as it does disturbances; see ``LiberoStarts``."""
        self._generator, self._pushes = np.random.default_rng(seed), []
        task, trial = self._starts.start(seed, self._own_task)
        with _global_seed():
            self._build(task)
        return self._begin(trial, self._num_settle_steps)

    def _begin(self, trial: int, num_settle_steps: int) -> Any:
        """Restore a start state of the present scene, and let objects come to lie."""
        with _global_seed():
            self._env.reset()
            # What was played before would start the fingers and the solver of contacts elsewhere.
            self._env.robots[0].gripper.current_action[:] = 0.0
            self._env.sim.data.qacc_warmstart[:] = 0.0
            obs = self._env.set_init_state(self._states[trial])
            for _ in range(num_settle_steps):
                obs = self._env.step(self._rest)[0]
        return obs

    def step(self, action: Any) -> SingleStep:
        """Execute one action, a twentieth of a second: motion and rotation of the hand, and the gripper.

        1 moves by 5 cm along an axis or turns by 0.5 rad; the gripper opens at -1 and closes at 1. The reward is 1 with
        the task's success, which terminates, and 0 before.
        """
        wanted = np.array(action, np.float64)
        if not self._pushes and self._disturbance and self._generator.random() < self._disturbance:
            self._pushes = [self._generator.uniform(-1.0, 1.0, 3)] * _PUSH_ACTIONS
        if self._pushes:
            wanted[:3] = self._pushes.pop()
        with _global_seed():
            obs = self._env.step(wanted)[0]
        success = bool(self._env.check_success())
        return obs, float(success), success, False, success

    def observe(self, raw: Any) -> dict[str, Any]:
        """Render both cameras, which is done only here.

        Returns:
            ``states`` float32 [8], the hand's position, axis times angle, and both fingers; ``main_images`` and
            ``wrist_images`` as published policies see them; the sentence; maybe ``objects`` float32 [7], positions of
            the object and of the basket, and 1 where the gripper holds the object.
        """
        hand = [raw["robot0_eef_pos"], axis_angle(raw["robot0_eef_quat"]), raw["robot0_gripper_qpos"]]
        row: dict[str, Any] = {
            "states": np.concatenate(hand).astype(np.float32),
            **{key: self._draw(camera, self._image_size) for key, camera in _CAMERAS.items()},
            "task_descriptions": self._suite.get_task(self._task).language,
        }
        if self._shows_objects:
            row["objects"] = self._objects(raw)
        return row

    def render(self) -> Frame | None:
        """Return the present image, uint8 [H, W, 3]."""
        return self._draw(_CAMERAS["main_images"], _VIDEO_SIZE)

    def close(self) -> None:
        """Free the simulator."""
        for renderer in self._renderers.values():
            renderer.close()
        self._renderers = {}
        if self._env is not None:
            self._env.close()
            self._env, self._task = None, -1

    def _build(self, task: int) -> None:
        """Build a task's scene, which takes seconds, unless it is the present one."""
        if task == self._task:
            return
        self.close()
        wrapper = require("libero.libero.envs.env_wrapper", needed_by="env_type=libero")
        file = Path(self._suite.get_task_bddl_file_path(task))
        self._env = wrapper.ControlEnv(
            str(file), use_camera_obs=False, has_offscreen_renderer=False, ignore_done=True, horizon=_NO_LIMIT
        )
        self._env.seed(_SEED)
        self._env.reset()
        # Later resets keep the scene; the first of them may differ from the others, which are alike bit for bit.
        self._env.env.hard_reset = False
        self._states = np.asarray(self._suite.get_task_init_states(task))
        self._begin(0, 1)
        self._task = task
        if self._is_light:
            quality = self._env.sim.model._model.vis.quality
            quality.shadowsize = quality.offsamples = 0

    def _objects(self, raw: Any) -> npt.NDArray[np.float32]:
        """Return what the scripted policy reads [7]; see ``observe``."""
        scene = self._env.env
        names = self._env.obj_of_interest
        is_held = scene._check_grasp(scene.robots[0].gripper, scene.get_object(names[0]).contact_geoms)
        return np.concatenate([*(raw[f"{name}_pos"] for name in names), [is_held]]).astype(np.float32)

    def _draw(self, camera: str, size: int) -> Frame:
        sim = self._env.sim
        if size not in self._renderers:
            self._renderers[size] = self._mujoco.Renderer(sim.model._model, size, size)
        renderer = self._renderers[size]
        renderer.update_scene(sim.data._data, camera, self._view)
        if self._is_light:
            renderer.scene.flags[self._mujoco.mjtRndFlag.mjRND_SHADOW] = False
            renderer.scene.flags[self._mujoco.mjtRndFlag.mjRND_REFLECTION] = False
        # Published policies see what robosuite renders, upside down, turned by 180 degrees: a mirrored image.
        frame: Frame = np.ascontiguousarray(renderer.render()[:, ::-1])
        return frame


@contextmanager
def _global_seed() -> Iterator[None]:
    """Seed numpy's global generator, from which LIBERO samples, and restore it behind."""
    state = np.random.get_state()
    np.random.seed(_SEED)
    try:
        yield
    finally:
        np.random.set_state(state)


def axis_angle(quaternion: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return a rotation's axis times its angle [3], from (x, y, z, w), as published states have it.

    The angle is between 0 and 2 pi: ``w`` and ``-w`` differ, though they are the same rotation.
    """
    w = float(np.clip(quaternion[3], -1.0, 1.0))
    length = np.sqrt(1.0 - w * w)
    if length < 1e-12:
        return np.zeros(3)
    scaled: npt.NDArray[np.float64] = quaternion[:3] * 2.0 * np.arccos(w) / length
    return scaled


def make_libero_env(*, render: bool, **kwargs: Any) -> LiberoSingleEnv:
    """Build one environment; it renders images anyway.

    Raises:
        ConfigError: The assets are not there.
        MissingPackageError: LIBERO is not installed.
    """
    del render
    if "DISPLAY" not in os.environ:
        # MuJoCo would try GLFW first, which cannot work without a display; read when it is imported.
        os.environ.setdefault("MUJOCO_GL", "egl")
    return LiberoSingleEnv(**kwargs)
