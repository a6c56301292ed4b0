"""Adapter for RoboTwin 2, tasks of two arms in SAPIEN (Chen et al., arXiv 2506.18088); unproven.

It follows the calls of the published evaluation of RoboTwin 2.0 (``script/eval_policy.py``, commit c3ddfa8b), which the
sources of August 2026 (commit cf47ab56) still take. It was tested against a fake and a transcript that were written
from these sources, never with the simulator. The guest has SAPIEN, CuRobo, a copy of the repository and its assets.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .adapter_tools import as_image, import_simulator, pick, with_options

if TYPE_CHECKING:
    # Guests may run on Python 3.8, where these cannot be evaluated.
    Row = dict[str, Any]
    Array = np.ndarray[Any, Any]

PACKAGES = ("sapien",)

_MOST_TRIES = 100
"""Seeds in a row whose objects do not come to rest; some tasks reject every second one."""
_POSE_NUMBERS = 7
"""Numbers of an arm with ``action_type: ee``: position and quaternion."""
_CACHE_RESETS = 5
"""Resets between two clearings of SAPIEN's cache, as in the published evaluation."""
_INSTALL = "install what script/requirements.txt of https://github.com/RoboTwin-Platform/RoboTwin lists there"


@with_options
def make(
    *,
    render: bool,
    source_path: str,
    task: str,
    task_config: str = "demo_clean",
    action_type: str = "qpos",
    seeds: list[int] | None = None,
    instructions: list[str] | None = None,
    eval_mode: bool = False,
) -> TwoArmEnv:
    """Build one environment.

    Args:
        render: Whether a video is wanted; the head camera renders anyway.
        source_path: Folder of the repository, with its assets; it becomes the working directory.
        task: Name of the task, ``beat_block_hammer`` for example.
        task_config: Name of the configuration, ``demo_clean`` or ``demo_randomized`` for example.
        action_type: ``qpos`` for joints' positions, or ``ee`` for poses of the end effectors.
        seeds: RoboTwin's seeds that are played, those that its expert solves for example; None plays every one.
        instructions: Sentences of which a seed names one; None takes the description of the task.
        eval_mode: Whether backgrounds are those of evaluations.

    Raises:
        ValueError: The folder is not there, or there is no such type of actions.
    """
    del render
    source = Path(source_path).resolve()
    if not (source / "envs" / "_base_task.py").is_file():
        raise ValueError(
            f"source_path: '{source}' has no envs/_base_task.py; clone https://github.com/RoboTwin-Platform/RoboTwin"
        )
    if action_type not in ("qpos", "ee"):
        raise ValueError(f"action_type: received '{action_type}'; allowed: qpos, ee")
    # The simulator looks for assets and configurations from there.
    os.chdir(str(source))
    if str(source) not in sys.path:
        sys.path.insert(0, str(source))
    settings = {**load_settings(task, task_config), "eval_mode": eval_mode}
    simulator = getattr(import_simulator(f"envs.{task}", _INSTALL), task)()
    return TwoArmEnv(
        simulator,
        settings,
        action_type=action_type,
        seeds=seeds,
        instructions=instructions or [describe(source, task)],
    )


class TwoArmEnv:
    """One task, as ``rlinf.envs.guests.rows`` drives it.

    An action says where both arms go, left one first, each followed by its gripper (0 closed, 1 open): with ``qpos``
    the joints' positions in radians, with ``ee`` position and quaternion. The simulator plans the way there, in as
    many steps as it takes. A seed whose objects do not come to rest stands for the next one that does.

    Args:
        simulator: RoboTwin's task.
        settings: Arguments of its ``setup_demo``.
        action_type: See ``make``.
        seeds: See ``make``.
        instructions: See ``make``.
    """

    def __init__(
        self,
        simulator: Any,
        settings: dict[str, Any],
        *,
        action_type: str,
        seeds: list[int] | None,
        instructions: list[str],
    ) -> None:
        self._task, self._settings, self._action_type = simulator, settings, action_type
        self._seeds, self._instructions = seeds, instructions
        self._unstable = import_simulator("envs.utils.create_actor", _INSTALL).UnStableError
        arms = [
            _POSE_NUMBERS
            if action_type == "ee"
            else len(settings[f"{side}_embodiment_config"]["arm_joints_name"][index])
            for index, side in enumerate(("left", "right"))
        ]
        self.action_low = np.concatenate([[-np.inf] * arm + [0.0] for arm in arms]).astype(np.float32)
        self.action_high = np.concatenate([[np.inf] * arm + [1.0] for arm in arms]).astype(np.float32)
        self._num_resets, self._sentence = 0, ""
        self._frame: Array | None = None

    def reset(self, seed: int) -> Row:
        """Start the episode that a seed names.

        Raises:
            ValueError: The objects of too many seeds in a row do not come to rest.
        """
        first = seed if self._seeds is None else self._seeds[seed % len(self._seeds)]
        for number in range(first, first + _MOST_TRIES):
            if self._num_resets:
                self._task.close_env(clear_cache=self._num_resets % _CACHE_RESETS == 0)
            self._num_resets += 1
            try:
                self._task.setup_demo(now_ep_num=0, seed=number, is_test=True, **self._settings)
            except self._unstable:
                continue
            # When an episode is cut off is the host's to say.
            self._task.step_lim = None
            self._sentence = self._instructions[seed % len(self._instructions)]
            return self.row()
        raise ValueError(f"seeds {first} to {first + _MOST_TRIES - 1}: their objects do not come to rest")

    def step(self, action: Array) -> tuple[Any, float, bool, bool, bool]:
        """Execute one action; success rewards with 1 and terminates. The row is a function that renders it."""
        self._task.take_action(np.asarray(action, np.float64), action_type=self._action_type)
        success = bool(self._task.eval_success)
        return self.row, float(success), success, False, success

    def row(self) -> Row:
        """Return what is seen: head uint8 [H, W, 3], left and right wrist [2, H, W, 3], ``states`` as an action."""
        obs = self._task.get_obs()
        images = {name: as_image(obs["observation"][f"{name}_camera"]["rgb"]) for name in ("head", "left", "right")}
        self._frame = images["head"]
        if self._action_type == "ee":
            pose = obs["endpose"]
            states = [np.append(pose[f"{side}_endpose"], pose[f"{side}_gripper"]) for side in ("left", "right")]
        else:
            states = [obs["joint_action"]["vector"]]
        return {
            "states": np.concatenate(states).astype(np.float32),
            "main_images": images["head"],
            "wrist_images": np.stack([images["left"], images["right"]]),
            "task_descriptions": self._sentence,
        }

    def render(self) -> Array:
        """Return the head camera's image."""
        self.row()
        assert self._frame is not None
        return self._frame

    def close(self) -> None:
        """Free the simulator."""
        if self._num_resets:
            self._task.close_env(clear_cache=True)


def load_settings(task: str, task_config: str) -> dict[str, Any]:
    """Return a task's settings as the published evaluation puts them together, with what the rows show.

    Args:
        task: See ``make``.
        task_config: See ``make``.
    """
    folder = Path(import_simulator("envs", _INSTALL).CONFIGS_PATH)
    load = import_simulator("yaml", "install PyYAML there").safe_load

    def read(file: Path) -> Any:
        return load(file.read_text(encoding="utf-8"))

    settings = read(folder / f"{task_config}.yml")
    robots, cameras = read(folder / "_embodiment_config.yml"), read(folder / "_camera_config.yml")
    chosen = settings["embodiment"]
    camera = pick(cameras, settings["camera"]["head_camera_type"], "head_camera_type")
    files = [pick(robots, name, "embodiment")["file_path"] for name in (chosen[0], chosen[1 if len(chosen) > 1 else 0])]
    settings.update(
        task_name=task,
        task_config=task_config,
        render_freq=0,
        head_camera_h=camera["h"],
        head_camera_w=camera["w"],
        left_robot_file=files[0],
        right_robot_file=files[1],
        left_embodiment_config=read(Path(files[0]) / "config.yml"),
        right_embodiment_config=read(Path(files[1]) / "config.yml"),
        dual_arm_embodied=len(chosen) == 1,
        **({"embodiment_dis": chosen[2]} if len(chosen) > 1 else {}),
    )
    settings["data_type"].update(rgb=True, qpos=True, endpose=True)
    settings["camera"].update(collect_head_camera=True, collect_wrist_camera=True)
    return settings  # type: ignore[no-any-return]


def describe(source: Path, task: str) -> str:
    """Return the repository's description of a task.

    Args:
        source: See ``make``.
        task: See ``make``.
    """
    content = json.loads((source / "description" / "task_instruction" / f"{task}.json").read_text(encoding="utf-8"))
    # Angle brackets mark the parts that other descriptions are made of.
    text: str = content["full_description"].replace("<", "").replace(">", "")
    return text
