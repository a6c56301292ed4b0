"""Adapter for BEHAVIOR-1K, household activities in OmniGibson (Li et al., arXiv 2403.09227); unproven.

It follows the calls of BEHAVIOR-1K 3.7 (``OmniGibson/omnigibson/learning/eval.py``, commit 0b5348f9), and takes the
answers of its sources of 2026 (``envs/env_base.py``, commit 006d10e5) as well, which are lists of one. It was tested
against a fake and transcripts that were written from these sources, never with the simulator. The guest has OmniGibson,
Isaac Sim, the data set and a GPU. OmniGibson has one simulator a process: a guest has one environment.
"""

from __future__ import annotations

import gc
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .adapter_tools import as_array, as_image, import_simulator, with_options

if TYPE_CHECKING:
    # Guests may run on Python 3.8, where these cannot be evaluated.
    Row = dict[str, Any]
    Array = np.ndarray[Any, Any]

PACKAGES = ("omnigibson", "isaacsim")

_CAMERAS = {"head": "zed_link", "left": "left_realsense_link", "right": "right_realsense_link"}
"""Links of R1Pro that have its cameras."""
_NO_LIMIT = 10**9
"""Steps until the activity's own time is up; the host's ``max_episode_steps`` cuts episodes off."""
_INSTALL = "install https://github.com/StanfordVL/BEHAVIOR-1K there (setup.sh --omnigibson --bddl --dataset)"


@with_options
def make(
    *,
    render: bool,
    activity_name: str,
    scene_model: str,
    activity_definition_id: int = 0,
    activity_instance_id: int = 0,
    load_room_types: list[str] | None = None,
    config: str = "r1pro_behavior",
    proprio: list[str] | None = None,
    image_size: int | None = None,
    task_description: str | None = None,
) -> HouseholdEnv:
    """Build the environment of this guest.

    Args:
        render: Whether a video is wanted; the cameras render anyway.
        activity_name: Activity in BDDL, ``turning_on_radio`` for example.
        scene_model: Scene that the activity was sampled in, ``house_double_floor_lower`` for example.
        activity_definition_id: Which definition of it.
        activity_instance_id: Which sampled instance of it.
        load_room_types: Rooms that are loaded; None loads all.
        config: Configuration of OmniGibson with the robot R1Pro: a file, or the name of one that it brings along.
        proprio: Parts of ``states``; None has all 256 numbers of the published evaluation.
        image_size: Height and width of images; None leaves them as the configuration has them.
        task_description: The sentence; None makes one of the activity's name.

    Raises:
        ValueError: This guest has an environment already.
    """
    del render
    og = import_simulator("omnigibson", _INSTALL)
    if og.sim is not None:
        raise ValueError("OmniGibson has one simulator a process; set env.*.num_env_processes to one environment each")
    macros = import_simulator("omnigibson.macros", _INSTALL).gm
    macros.HEADLESS, macros.USE_GPU_DYNAMICS, macros.ENABLE_TRANSITION_RULES = True, False, True
    file = Path(config) if config.endswith((".yaml", ".yml")) else Path(og.example_config_path) / f"{config}.yaml"
    cfg = import_simulator("yaml", "install PyYAML there").safe_load(file.read_text(encoding="utf-8"))
    if proprio is None:
        proprio = list(
            import_simulator("omnigibson.learning.utils.eval_utils", _INSTALL).PROPRIOCEPTION_INDICES["R1Pro"]
        )
    cfg["env"].update(automatic_reset=False, flatten_action_space=False, flatten_obs_space=False)
    cfg["scene"].update(scene_model=scene_model, load_room_types=load_room_types)
    cfg["task"].update(
        type="BehaviorTask",
        activity_name=activity_name,
        activity_definition_id=activity_definition_id,
        activity_instance_id=activity_instance_id,
        online_object_sampling=False,
        include_obs=False,
    )
    cfg["task"].setdefault("termination_config", {})["max_steps"] = _NO_LIMIT
    cfg["robots"][0].update(obs_modalities=["rgb", "proprio"], proprio_obs=proprio)
    if image_size is not None:
        size = {"image_height": image_size, "image_width": image_size}
        sensors = cfg["robots"][0].setdefault("sensor_config", {}).setdefault("VisionSensor", {})
        sensors.setdefault("sensor_kwargs", {}).update(size)
    simulator = og.Environment(configs=cfg)
    # Isaac Sim turns collection off, and OmniGibson's scenes have circles of references.
    gc.enable()
    return HouseholdEnv(simulator, task_description or activity_name.replace("_", " "))


class HouseholdEnv:
    """One activity of the robot R1Pro, as ``rlinf.envs.guests.rows`` drives it.

    An action has 23 numbers, in the units of the configuration's controllers: base 3, torso 4, left arm 7, left
    gripper 1, right arm 7, right gripper 1. Every seed starts the same instance; it seeds what the simulator samples.

    Args:
        simulator: OmniGibson's environment.
        sentence: What the robot has to do.

    Raises:
        ValueError: There are several robots.
    """

    def __init__(self, simulator: Any, sentence: str) -> None:
        self._env, self._sentence = simulator, sentence
        self._torch = import_simulator("torch", _INSTALL)
        spaces = dict(simulator.action_space.items())
        if len(spaces) != 1:
            raise ValueError(f"config: one robot is driven; it has {', '.join(spaces)}")
        ((self._robot, space),) = spaces.items()
        self.action_low, self.action_high = np.array(space.low, np.float32), np.array(space.high, np.float32)
        self._row: Row = {}

    def reset(self, seed: int) -> Row:
        """Start the instance anew."""
        # What it samples comes from the global generators.
        random.seed(seed)
        np.random.seed(seed)
        self._torch.manual_seed(seed)
        return self._see(self._env.reset()[0])

    def step(self, action: Array) -> tuple[Row, float, bool, bool, bool]:
        """Execute one action; the activity's success terminates. The reward is the simulator's."""
        taken = np.asarray(action, np.float32)
        obs, reward, terminated, truncated, info = self._env.step(taken, n_render_iterations=1)
        success = bool(_only(info)["done"]["success"])
        return self._see(obs), float(reward), bool(terminated) or success, bool(truncated), success

    def render(self) -> Array:
        """Return the head camera's last image."""
        image: Array = self._row["main_images"]
        return image

    def close(self) -> None:
        """Close the environment; the simulator ends with its process."""
        self._env.close()

    def _see(self, obs: Any) -> Row:
        seen = _only(obs)[self._robot]
        images = {name: as_image(self._camera(seen, link)["rgb"]) for name, link in _CAMERAS.items()}
        self._row = {
            "states": as_array(seen["proprio"]).astype(np.float32),
            "main_images": images["head"],
            "wrist_images": np.stack([images["left"], images["right"]]),
            "task_descriptions": self._sentence,
        }
        return self._row

    def _camera(self, seen: dict[str, Any], link: str) -> Any:
        found = [name for name in seen if f":{link}:Camera:" in name]
        if len(found) != 1:
            raise ValueError(f"config: R1Pro has one camera at {link}; observations are {', '.join(seen)}")
        return seen[found[0]]


def _only(answer: Any) -> Any:
    """Return the answer for one environment, which newer sources give as a list."""
    return answer[0] if isinstance(answer, list) else answer
