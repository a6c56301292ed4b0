"""One LIBERO environment as a ``SingleEnv``; imports no torch itself, and LIBERO only when one is built.

LIBERO (Liu et al., arXiv 2306.03310) has suites of tasks; each task has a sentence, 50 published start states and a
predicate of success.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from rlinf.config.schema.env import LiberoEnvConfig
from rlinf.envs.opengl import choose_opengl
from rlinf.envs.raw_chunk import Frame
from rlinf.envs.simulators.libero.libero_assets import find_assets, load_suite
from rlinf.envs.simulators.libero.libero_starts import LiberoStarts, check_libero, libero_starts
from rlinf.envs.simulators.mujoco_cameras import MujocoCameras
from rlinf.envs.simulators.robosuite.robosuite_scene import axis_angle, numpy_seeded, scene_cameras
from rlinf.envs.single_env import SingleEnvSpec, SingleStep
from rlinf.utils.optional import require

_SEED = 0
"""Fixtures are placed at random when a scene is built; the published evaluation seeds it so."""
_CAMERAS = {"main_images": "agentview", "wrist_images": "robot0_eye_in_hand"}
_VIDEO_SIZE = 256
_NO_LIMIT = 2**62
_PUSH_ACTIONS = 6
"""How long a push lasts: the hand comes up to 6 cm off its way."""


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
        self._cameras: MujocoCameras | None = None
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
        with numpy_seeded(_SEED):
            self._build(task)
        return self._begin(trial, self._num_settle_steps)

    def _begin(self, trial: int, num_settle_steps: int) -> Any:
        """Restore a start state of the present scene, and let objects come to lie."""
        with numpy_seeded(_SEED):
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
        with numpy_seeded(_SEED):
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
        if self._cameras is not None:
            self._cameras.close()
            self._cameras = None
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
        self._cameras = scene_cameras(self._env.sim, is_light=self._is_light)

    def _objects(self, raw: Any) -> npt.NDArray[np.float32]:
        """Return what the scripted policy reads [7]; see ``observe``."""
        scene = self._env.env
        names = self._env.obj_of_interest
        is_held = scene._check_grasp(scene.robots[0].gripper, scene.get_object(names[0]).contact_geoms)
        return np.concatenate([*(raw[f"{name}_pos"] for name in names), [is_held]]).astype(np.float32)

    def _draw(self, camera: str, size: int) -> Frame:
        assert self._cameras is not None
        # Published policies see what robosuite renders, upside down, turned by 180 degrees: a mirrored image.
        frame: Frame = np.ascontiguousarray(self._cameras.draw(camera, size)[:, ::-1])
        return frame


def make_libero_env(*, render: bool, **kwargs: Any) -> LiberoSingleEnv:
    """Build one environment; it renders images anyway.

    Raises:
        ConfigError: The assets are not there.
        MissingPackageError: LIBERO is not installed.
    """
    del render
    choose_opengl()
    return LiberoSingleEnv(**kwargs)


def libero_envs(cfg: LiberoEnvConfig, *, num_envs: int, first_env: int) -> SingleEnvSpec:
    """Return the environments of a section; see ``SimulatorConfig.single_envs``.

    Raises:
        ConfigError: As ``check_libero``.
    """
    check_libero(cfg)
    starts = libero_starts(cfg)
    groups = [(first_env + row) // cfg.group_size for row in range(num_envs)]
    return SingleEnvSpec(
        env_type=cfg.env_type,
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
        first_env=first_env,
        num_envs=num_envs,
    )
