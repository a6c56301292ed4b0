"""One task of robosuite as a ``SingleEnv``; imports no torch itself, and robosuite only when one is built.

robosuite (Zhu et al., arXiv 2009.12293) has tasks of one or two arms on a table, each with a predicate of success and a
shaped reward.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from rlinf.config.schema.env import RobosuiteEnvConfig
from rlinf.envs.opengl import choose_opengl
from rlinf.envs.raw_chunk import Frame
from rlinf.envs.simulators.robosuite.robosuite_scene import axis_angle, numpy_seeded, scene_cameras
from rlinf.envs.simulators.robosuite.robosuite_tasks import TASK_DESCRIPTIONS
from rlinf.envs.single_env import SingleEnvSpec, SingleStep
from rlinf.utils.optional import require

_SEED = 0
"""Sizes of objects are sampled when a scene is built, and stay."""
_VIDEO_SIZE = 256
_NO_LIMIT = 2**62
_SAMPLED_OBJECTS = {"PickPlaceSingle": ("object_id", 4), "NutAssemblySingle": ("nut_id", 2)}
"""Tasks whose object changes from episode to episode: where robosuite keeps its number, and how many there are."""
_ONE_OBJECT = 2
"""robosuite's ``single_object_mode`` in which the number says which object is there."""


class RobosuiteSingleEnv:
    """A task's scene, which is built once; resets sample positions alone.

    Args:
        cfg: Its configuration.
    """

    def __init__(self, cfg: RobosuiteEnvConfig) -> None:
        robosuite = require("robosuite", needed_by="env_type=robosuite")
        self._arms = [f"robot{arm}_" for arm in range(2 if cfg.task_name.startswith("TwoArm") else 1)]
        with numpy_seeded(_SEED):
            self._env: Any = robosuite.make(
                cfg.task_name,
                robots=[cfg.robots] * len(self._arms),
                controller_configs=robosuite.load_controller_config(default_controller=cfg.controller),
                control_freq=cfg.control_frequency_hz,
                reward_shaping=cfg.reward_shaping,
                use_camera_obs=False,
                has_offscreen_renderer=False,
                hard_reset=False,
                ignore_done=True,
                horizon=_NO_LIMIT,
            )
        self._sampled = _SAMPLED_OBJECTS.get(cfg.task_name)
        if self._sampled is not None:
            # robosuite itself would choose from a set of strings, whose order differs from process to process.
            self._env.single_object_mode = _ONE_OBJECT
        self._description = cfg.task_description or TASK_DESCRIPTIONS[cfg.task_name]
        self._image_size, self._shows_objects = cfg.image_size, cfg.show_objects
        self._views: dict[str, str] = {"main_images": cfg.main_camera}
        if cfg.wrist_camera is not None:
            self._views["wrist_images"] = cfg.wrist_camera
        self._cameras = scene_cameras(self._env.sim, is_light=cfg.render_quality == "light")
        low, high = (bound.astype(np.float32) for bound in self._env.action_spec)
        self.action_space: gymnasium.Space[Any] = gymnasium.spaces.Box(low, high)
        self.observation_space = self._space(self.reset(_SEED))

    def reset(self, seed: int) -> Any:
        """Start an episode whose posture and positions are sampled from ``seed``; return the observation."""
        with numpy_seeded(seed):
            if self._sampled is not None:
                name, count = self._sampled
                setattr(self._env, name, np.random.randint(count))
            for robot in self._env.robots:
                # The fingers would go on from where the episode before had moved them to.
                if robot.has_gripper:
                    robot.gripper.current_action[:] = 0.0
            return self._env.reset()

    def step(self, action: Any) -> SingleStep:
        """Execute one action of the controller, by default a twentieth of a second; -1 opens a gripper, 1 closes it.

        The reward is robosuite's, whose greatest value is 1; success is the task's own predicate and terminates.
        """
        obs, reward, _, _ = self._env.step(np.array(action, np.float64))
        success = bool(self._env._check_success())
        return obs, float(np.clip(reward, 0.0, 1.0)), success, False, success

    def observe(self, raw: Any) -> dict[str, Any]:
        """Return ``states`` and the sentence, and render the images, which is done only here.

        Returns:
            ``states`` float32 [S], all that robosuite shows of arms and objects. With images, of each arm position,
            axis times angle and fingers of its hand, next to ``main_images`` and maybe ``wrist_images`` uint8
            [H, W, 3], and maybe ``objects``, the whole state, float32 [S].
        """
        row: dict[str, Any] = {"task_descriptions": self._description}
        if self._image_size is None:
            return row | {"states": self._whole(raw)}
        row["states"] = self._hands(raw)
        row |= {key: self._cameras.draw(camera, self._image_size) for key, camera in self._views.items()}
        return row | {"objects": self._whole(raw)} if self._shows_objects else row

    def render(self) -> Frame | None:
        """Return the present image, uint8 [H, W, 3]."""
        return self._cameras.draw(self._views["main_images"], _VIDEO_SIZE)

    def close(self) -> None:
        """Free the simulator."""
        self._cameras.close()
        self._env.close()

    def _whole(self, raw: Any) -> npt.NDArray[np.float32]:
        """Return robosuite's ``proprio-state`` of each arm and its ``object-state`` [S]."""
        parts = [*(raw[f"{arm}proprio-state"] for arm in self._arms), raw["object-state"]]
        return np.concatenate(parts).astype(np.float32)

    def _hands(self, raw: Any) -> npt.NDArray[np.float32]:
        """Return position, axis times angle and fingers of each hand [8 for an arm with two fingers]."""
        parts = []
        for arm in self._arms:
            fingers = raw.get(f"{arm}gripper_qpos", np.zeros(0))
            parts += [raw[f"{arm}eef_pos"], axis_angle(raw[f"{arm}eef_quat"]), fingers]
        return np.concatenate(parts).astype(np.float32)

    def _space(self, raw: Any) -> gymnasium.spaces.Dict:
        """Return the space of rows, of the sizes that an observation has."""
        whole = _numbers(self._whole(raw))
        row: dict[str, gymnasium.Space[Any]] = {"task_descriptions": gymnasium.spaces.Text(max_length=256)}
        if self._image_size is None:
            return gymnasium.spaces.Dict({**row, "states": whole})
        image = gymnasium.spaces.Box(0, 255, (self._image_size, self._image_size, 3), np.uint8)
        row |= {"states": _numbers(self._hands(raw)), **dict.fromkeys(self._views, image)}
        if self._shows_objects:
            row["objects"] = whole
        return gymnasium.spaces.Dict(row)


def _numbers(values: npt.NDArray[np.float32]) -> gymnasium.spaces.Box:
    return gymnasium.spaces.Box(-np.inf, np.inf, values.shape, np.float32)


def make_robosuite_env(*, render: bool, cfg: RobosuiteEnvConfig) -> RobosuiteSingleEnv:
    """Build one environment; it can render anyway.

    Raises:
        MissingPackageError: robosuite is not installed.
    """
    del render
    choose_opengl()
    return RobosuiteSingleEnv(cfg)


def robosuite_envs(cfg: RobosuiteEnvConfig, *, num_envs: int, first_env: int) -> SingleEnvSpec:
    """Return the environments of a section; see ``SimulatorConfig.single_envs``."""
    return SingleEnvSpec(
        env_type=cfg.env_type,
        factory=make_robosuite_env,
        kwargs={"cfg": cfg},
        first_env=first_env,
        num_envs=num_envs,
    )
