"""Adapter for RoboCasa, kitchens in robosuite (Nasiriany et al., arXiv 2406.02523); unproven.

It follows the calls of RoboCasa 1.0.1 (commit be22d659) with robosuite 1.5.2, and images, states and parts of actions
are those of the published RLinf. It was tested against a fake and a transcript that were written from these sources,
never with the simulator. The guest has both packages and the kitchens' assets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .adapter_tools import as_image, import_simulator, pick, with_options

if TYPE_CHECKING:
    # Guests may run on Python 3.8, where these cannot be evaluated.
    Row = dict[str, Any]
    Array = np.ndarray[Any, Any]

PACKAGES = ("robocasa", "robosuite", "mujoco")

ACTION_PARTS = {"arm": (0, 6), "gripper": (6, 7), "base": (7, 10), "torso": (10, 11), "base_mode": (11, 12)}
"""Where each part stands among the 12 numbers of an action."""
_SWITCHES = (6, 11)
"""Those that only say -1 or 1: the gripper, which 1 closes, and the mode, whose 1 controls the base."""
_AT_REST = (0.0,) * 11 + (-1.0,)
"""Of parts that the policy does not say: nothing moves, and the arm is controlled, not the base."""
_SPLIT = {"right": (0, 6), "right_gripper": (6, 7), "base": (7, 10), "torso": (10, 11)}
"""The same in the words of robosuite's controller; the mode is the last number."""

_CAMERAS = {"main_images": "robot0_agentview_left", "wrist_images": "robot0_eye_in_hand"}
_STATES = (
    "robot0_eef_pos",
    "robot0_eef_quat",
    "robot0_gripper_qpos",
    "robot0_gripper_qvel",
    "robot0_base_to_eef_pos",
    "robot0_base_to_eef_quat",
    "robot0_base_pos",
    "robot0_base_quat",
)
_INSTALL = (
    "install robosuite (its master branch) and https://github.com/robocasa/robocasa there, then run "
    "python -m robocasa.scripts.download_kitchen_assets"
)


@with_options
def make(
    *,
    render: bool,
    task: str,
    robot: str = "PandaOmron",
    split: str | None = None,
    layout_ids: Any = None,
    style_ids: Any = None,
    obj_instance_split: str | None = None,
    cameras: dict[str, str] | None = None,
    image_size: int = 224,
    states: list[str] | None = None,
    action_parts: list[str] | None = None,
    unit_switches: bool = False,
) -> KitchenEnv:
    """Build one environment.

    Args:
        render: Whether a video is wanted; the cameras render anyway.
        task: Name of the task, ``CloseDrawer`` for example.
        robot: One with the 12 numbers of ``ACTION_PARTS``.
        split: ``pretrain``, ``target`` or ``all``: kitchens and objects; None leaves it to the next three.
        layout_ids: Kitchens' layouts, as RoboCasa takes them.
        style_ids: Kitchens' styles, as RoboCasa takes them.
        obj_instance_split: Which instances of objects there are.
        cameras: Camera by the name that its images have in an observation.
        image_size: Height and width of images.
        states: Names of RoboCasa's observations, which ``states`` joins.
        action_parts: Parts of ``ACTION_PARTS`` that an action has, in this order; None has all.
        unit_switches: Policies and data sets say gripper and mode by 0 and 1: from a half on it is 1, below -1.
    """
    del render
    shown = dict(cameras or _CAMERAS)
    parts = [pick(ACTION_PARTS, part, "action_parts") for part in action_parts or ACTION_PARTS]
    import_simulator("robocasa", _INSTALL)
    simulator = import_simulator("robocasa.utils.env_utils", _INSTALL).create_env(
        env_name=task,
        robots=robot,
        camera_names=list(shown.values()),
        camera_widths=image_size,
        camera_heights=image_size,
        seed=0,
        split=split,
        obj_instance_split=obj_instance_split,
        layout_ids=layout_ids,
        style_ids=style_ids,
    )
    seen = list(states or _STATES)
    return KitchenEnv(simulator, cameras=shown, states=seen, parts=parts, unit_switches=unit_switches)


class KitchenEnv:
    """One kitchen, as ``rlinf.envs.guests.rows`` drives it; a seed names layout, style, objects and their places.

    Args:
        simulator: RoboCasa's environment.
        cameras: See ``make``.
        states: See ``make``.
        parts: Ranges of the 12 numbers that an action gives.
        unit_switches: See ``make``.
    """

    def __init__(
        self,
        simulator: Any,
        *,
        cameras: dict[str, str],
        states: list[str],
        parts: list[tuple[int, int]],
        unit_switches: bool,
    ) -> None:
        self._env, self._cameras, self._states = simulator, cameras, states
        self._places = np.concatenate([np.arange(*part) for part in parts])
        self._unit = np.isin(self._places, _SWITCHES) & unit_switches
        self.action_low = np.where(self._unit, 0.0, -1.0).astype(np.float32)
        self.action_high = np.full(len(self._places), 1.0, np.float32)
        self._sentence = ""
        self._row: Row = {}

    def reset(self, seed: int) -> Row:
        """Start the episode that a seed names."""
        # Every reset builds the kitchen again, and draws all of it from this generator.
        self._env.rng = np.random.default_rng(seed)
        obs = self._env.reset()
        split = dict(self._env.robots[0].composite_controller._action_split_indexes)
        if split != _SPLIT:
            raise ValueError(f"robot: its action is split as {split}; this adapter knows robots with {_SPLIT}")
        self._sentence = self._env.get_ep_meta()["lang"]
        return self._see(obs)

    def step(self, action: Array) -> tuple[Row, float, bool, bool, bool]:
        """Execute one action, 20 times a second; success rewards with 1 and terminates."""
        taken = np.array(_AT_REST)
        taken[self._places] = np.where(self._unit, np.where(action < 0.5, -1.0, 1.0), action)
        obs = self._env.step(taken)[0]
        success = bool(self._env._check_success())
        return self._see(obs), float(success), success, False, success

    def render(self) -> Array:
        """Return the last main image."""
        image: Array = self._row["main_images"]
        return image

    def close(self) -> None:
        """Free the simulator."""
        self._env.close()

    def _see(self, obs: Row) -> Row:
        images = {
            # OpenGL's first row is the lowest.
            shown: as_image(pick(obs, f"{camera}_image", "cameras"), upside_down=True)
            for shown, camera in self._cameras.items()
        }
        states = np.concatenate([np.ravel(pick(obs, name, "states")) for name in self._states]).astype(np.float32)
        self._row = {"states": states, **images, "task_descriptions": self._sentence}
        return self._row
