"""Adapter for CALVIN (Mees et al., arXiv 2112.03227): a Panda arm at a table with drawer, slider, lights and blocks.

The guest has PyBullet and a copy of the folder ``calvin_env`` of its authors, whose environment and task oracle do the
work. An episode is a chain of tasks, each with its sentence and at most 360 steps.
"""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .calvin_chains import CHAIN_LENGTH, chains_that_begin, start_state
from .calvin_tasks import SENTENCES

if TYPE_CHECKING:
    # Guests may run on Python 3.8, where these cannot be evaluated.
    Row = dict[str, Any]
    Array = np.ndarray[Any, Any]

PACKAGES = ("pybullet",)

MAX_TASK_STEPS = 360
"""Steps that the published evaluation gives a policy for each task."""
NUM_HAND_STATES = 7
"""Numbers of the state that tell of the hand: position, orientation, and how far the gripper is open."""

_CAMERAS = {"static": "main_images", "gripper": "wrist_images"}


def make(
    *,
    render: bool,
    group: int = 0,
    source_path: str,
    scene: str,
    first_tasks: list[str] | None = None,
    chain_length: int = CHAIN_LENGTH,
    max_task_steps: int | None = MAX_TASK_STEPS,
    cameras: list[str],
    image_size: int,
    wrist_image_size: int,
    joint_states: bool = True,
) -> CalvinChainEnv:
    """Build one environment.

    Args:
        render: Whether a video is wanted; the static camera renders it anyway.
        group: The environment's group, which says which of several tables it has.
        source_path: Folder with ``calvin_env``, ``conf`` and ``data``.
        scene: ``A``, ``B``, ``C`` or ``D``, or several.
        first_tasks: Chains that begin with one of these are played; None plays all.
        chain_length: How many tasks of each chain are played.
        max_task_steps: Steps for each task; None sets no limit.
        cameras: ``static``, ``gripper``, or both.
        image_size: Height and width of the static camera's images.
        wrist_image_size: Height and width of the gripper camera's images.
        joint_states: Whether states tell of the arm's joints, too.

    Raises:
        ValueError: The folder is not there, or no chain begins with these tasks.
    """
    del render
    source = Path(source_path)
    if not (source / "calvin_env" / "envs" / "play_table_env.py").is_file():
        raise ValueError(
            f"source_path: '{source}' has no calvin_env; clone https://github.com/mees/calvin_env and name it"
        )
    sizes = {"static": image_size, "gripper": wrist_image_size}
    # The static camera is always there: it renders videos.
    simulator = build_simulator(
        source, scene[group % len(scene)], {name: sizes[name] for name in ("static", "gripper")}
    )
    chains = chains_that_begin(first_tasks)
    if not chains:
        raise ValueError(f"first_tasks: no chain begins with one of {first_tasks}")
    return CalvinChainEnv(
        simulator,
        load_oracle(source),
        chains=chains,
        chain_length=chain_length,
        max_task_steps=max_task_steps,
        cameras=cameras,
        joint_states=joint_states,
    )


class CalvinChainEnv:
    """Plays chains of tasks in CALVIN's simulator, as ``rlinf.envs.guests.rows`` drives it.

    An action has seven numbers in [-1, 1], 30 times a second: motion (1 is 2 cm), rotation (1 is 0.05 rad), and the
    gripper, which a positive number opens and any other closes. A task that is solved gives the reward 1 and the next
    sentence; actions that were chosen for the sentence before, the rest of their chunk, are not executed. The last
    task's success terminates the episode; a task that is not solved in ``max_task_steps`` truncates it.

    Args:
        simulator: CALVIN's environment, which has not rendered yet.
        oracle: CALVIN's tasks, which compare two infos.
        chains: A seed names one of these: ``seed % len(chains)``.
        chain_length: How many tasks of each are played.
        max_task_steps: Steps for each task; None sets no limit.
        cameras: Those that observations show.
        joint_states: Whether states tell of the arm's joints, too.
    """

    action_low = np.full(7, -1.0, np.float32)
    action_high = np.full(7, 1.0, np.float32)

    def __init__(
        self,
        simulator: Any,
        oracle: Any,
        *,
        chains: list[Any],
        chain_length: int,
        max_task_steps: int | None,
        cameras: list[str],
        joint_states: bool,
    ) -> None:
        self._env, self._oracle, self._chains, self._shown = simulator, oracle, chains, list(cameras)
        self._chain_length, self._max_task_steps = chain_length, max_task_steps
        self._num_states = None if joint_states else NUM_HAND_STATES
        # Without cameras the simulator's own steps render nothing.
        self._cameras = {camera.name: camera for camera in simulator.cameras}
        simulator.cameras = []
        self._built = simulator.p.saveState(physicsClientId=simulator.cid)
        self._tasks: tuple[str, ...] = ()
        self._num_solved, self._task_steps, self._waits = 0, 0, False
        self._info: Any = None

    def reset(self, seed: int) -> Row:
        """Start the chain that a seed names."""
        symbols, tasks = self._chains[seed % len(self._chains)]
        self._tasks = tasks[: self._chain_length]
        self.restore(*start_state(symbols))
        return self.row()

    def restore(self, robot: Array, scene: Array) -> None:
        """Begin the first task of the chain from a state of the robot [15] and of the scene [24]."""
        p, client = self._env.p, self._env.cid
        p.restoreState(self._built, physicsClientId=client)
        # Pairs of bodies that were close stay known until a step finds them apart, and change the first contacts.
        p.stepSimulation(physicsClientId=client)
        p.restoreState(self._built, physicsClientId=client)
        self._env.robot.gripper_action = 1
        for button in self._env.scene.buttons:
            button.prev_is_pressed = False
        self._env.reset(robot_obs=robot, scene_obs=scene)
        self._num_solved, self._waits = 0, False
        self._begin_task()

    def begin_chunk(self) -> None:
        """Execute actions again after a task was solved: these were chosen for the present sentence."""
        self._waits = False

    def step(self, action: Array) -> tuple[Any, float, bool, bool, bool]:
        """Execute one action; the row is a function that renders it."""
        if self._waits:
            return self.row, 0.0, False, False, False
        info = self._env.step(relative_action(action))[3]
        self._task_steps += 1
        if self._num_solved == len(self._tasks):
            # The host goes on after the end (ignore_terminations): no task is left.
            return self.row, 0.0, True, False, True
        task = self._tasks[self._num_solved]
        if not self._oracle.get_task_info_for_set(self._info, info, {task}):
            return self.row, 0.0, False, self._task_steps == self._max_task_steps, False
        self._num_solved += 1
        is_over = self._num_solved == len(self._tasks)
        if not is_over:
            self._waits = True
            self._begin_task()
        return self.row, 1.0, is_over, False, is_over

    def row(self) -> Row:
        """Return what is seen: ``states`` float32 [15] or [7], images uint8 [H, W, 3], the sentence."""
        images = {_CAMERAS[name]: self._image(name) for name in self._shown}
        states = self._env.get_state_obs()["robot_obs"][: self._num_states].astype(np.float32)
        # After the end the last sentence stays.
        task = self._tasks[min(self._num_solved, len(self._tasks) - 1)]
        return {"states": states, **images, "task_descriptions": SENTENCES[task]}

    def render(self) -> Array:
        """Return the static camera's image."""
        return self._image("static")

    def close(self) -> None:
        """Free the simulator."""
        if self._env.ownsPhysicsClient:
            self._env.close()
            # The simulator's destructor would close it again.
            self._env.ownsPhysicsClient = False

    def _begin_task(self) -> None:
        self._task_steps = 0
        self._info = self._env.get_info()

    def _image(self, name: str) -> Array:
        return np.array(self._cameras[name].render()[0], np.uint8)


def relative_action(action: Array) -> Array:
    """Return an action as CALVIN takes it: the gripper is 1 (open) or -1, never between."""
    taken = np.clip(np.asarray(action, np.float64), -1.0, 1.0)
    taken[6] = 1.0 if taken[6] > 0 else -1.0
    return taken


def build_simulator(source: Path, scene: str, cameras: dict[str, int]) -> Any:
    """Return CALVIN's environment on the CPU, without a window.

    Args:
        source: See ``make``.
        scene: ``A`` to ``D``.
        cameras: Height and width of each camera's images.
    """
    if str(source) not in sys.path:
        sys.path.insert(0, str(source))
    # Sensors of touch, which these scenes do not have; its camera module imports them all the same.
    sys.modules.setdefault("tacto", types.ModuleType("tacto"))
    omegaconf = importlib.import_module("omegaconf").OmegaConf
    table = importlib.import_module("calvin_env.envs.play_table_env")
    robot: Any = importlib.import_module("calvin_env.robot.robot")

    class Simulator(table.PlayTableSimEnv):  # type: ignore[misc, name-defined, unused-ignore]
        def load(self) -> None:
            # Some of the robot's calls leave out which of several simulators they mean; this one adds it.
            plain, robot.p = robot.p, self.p
            super().load()
            robot.p = plain

    def load(file: Path) -> Any:
        # References between the files are resolved when all are together.
        return omegaconf.to_container(omegaconf.load(file), resolve=False)

    cfg = omegaconf.create(simulator_config(source / "conf", scene, cameras, load)).env
    return Simulator(**{key: cfg[key] for key in cfg if not str(key).startswith("_")})


def simulator_config(folder: Path, scene: str, cameras: dict[str, int], load: Any) -> dict[str, Any]:
    """Return CALVIN's own configuration of the environment, with the settings that differ."""
    robot = {**load(folder / "robot" / "panda.yaml"), **load(folder / "robot" / "panda_longer_finger.yaml")}
    return {
        "data_path": "data",
        "scene": load(folder / "scene" / f"calvin_scene_{scene}.yaml"),
        "robot": {key: value for key, value in robot.items() if key != "defaults"},
        "cameras": {
            name: {**load(folder / "cameras" / "cameras" / f"{name}.yaml"), "width": size, "height": size}
            for name, size in cameras.items()
        },
        "env": {
            **load(folder / "env" / "play_table_env.yaml"),
            "use_vr": False,
            "use_egl": False,
            "use_scene_info": True,
        },
    }


def load_oracle(source: Path) -> Any:
    """Return CALVIN's own judge of its 34 tasks."""
    omegaconf = importlib.import_module("omegaconf").OmegaConf
    tasks = importlib.import_module("calvin_env.envs.tasks").Tasks
    return tasks(omegaconf.load(source / "conf" / "tasks" / "new_playtable_tasks.yaml").tasks)
