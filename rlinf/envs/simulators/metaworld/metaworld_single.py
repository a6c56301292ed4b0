"""One Meta-World task as a ``SingleEnv``; imports no torch, and Meta-World only when one is built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from rlinf.config.schema.env import MetaWorldEnvConfig
from rlinf.envs.opengl import choose_opengl
from rlinf.envs.raw_chunk import Frame
from rlinf.envs.simulators.metaworld.metaworld_rotation import use_plain_rotation
from rlinf.envs.simulators.metaworld.metaworld_tasks import PAPER_SENTENCES, SPLITS, TASK_DESCRIPTIONS, tasks_of
from rlinf.envs.simulators.mujoco_cameras import MujocoCameras
from rlinf.envs.single_env import SingleEnvSpec, SingleStep
from rlinf.utils.optional import require

# A multiple of 16, which video encoders want; software rendering takes time in proportion to the pixels.
_FRAME_SIZE = 256
_CAMERA = "corner2"
_CAMERA_POSITION = (0.75, 0.075, 0.7)
"""Where published policies' images are taken from: nearer than where the camera is in Meta-World."""
_NUM_PROPRIO = 4
"""Numbers of the state that tell of the robot itself: the hand's position and the opening of the gripper."""
_GOAL = slice(36, 39)
"""Where the state has the goal."""
_REST = np.zeros(4, np.float32)
"""An action without a motion."""
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
        render: Whether it has to render videos; without them and without ``image_size``, nothing of OpenGL is loaded.
        image_size: Height and width of the images that observations have; None is none.
        is_light: Render these without shadow maps and multisampling.
        shows_objects: Whether observations with images have ``objects``.
        hides_goal: Whether ``states`` have zeros where the goal is.
        goals: Numbers of tasks and of start states of each that reset-state ids go through; None lets each id name
            another.
        num_settle_steps: Actions without a motion after a reset.
        rewards_success: Whether success is the reward, and ends an episode; otherwise the reward is Meta-World's own.
        sentences: ``own`` or ``paper``.
    """

    def __init__(
        self,
        task_name: str,
        *,
        task_code: npt.NDArray[np.float32],
        render: bool,
        image_size: int | None,
        is_light: bool,
        shows_objects: bool,
        hides_goal: bool = False,
        goals: tuple[int, int] | None = None,
        num_settle_steps: int = 0,
        rewards_success: bool = False,
        sentences: str = "own",
    ) -> None:
        if render or image_size:
            choose_opengl()
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
        self._description = (PAPER_SENTENCES if sentences == "paper" else TASK_DESCRIPTIONS)[task_name]
        self._num_settle_steps, self._rewards_success = num_settle_steps, rewards_success
        self._task_code = task_code
        self._camera = _Camera(env, image_size, is_light=is_light) if image_size else None
        self._shows_objects, self._hides_goal, self._goals = shows_objects, hides_goal, goals
        self.action_space: gymnasium.Space[Any] = env.action_space
        self.observation_space = self._space(env.sawyer_observation_space.shape[0])

    def reset(self, seed: int) -> Any:
        """Start an episode whose object and goal positions are sampled from ``seed``; return the observation."""
        obs = self._begin(seed)
        for _ in range(self._num_settle_steps):
            obs = self._env.step(_REST)[0]
        if self._camera is not None:
            self._camera.place_marks()
        return obs

    def _begin(self, seed: int) -> Any:
        """Sample the positions and return the first observation."""
        env = self._env
        # env.reset(seed=...) ignores its argument.
        env.np_random = np.random.default_rng(self._start(seed))
        if self._reset_twice:
            return env.reset()[0]
        env.curr_path_length = 0
        obs, _ = self._base_reset(env)
        # The observation holds the previous frame and the present one; at a reset they are the same.
        env._prev_obs = obs[:18].copy()
        obs[18:36] = env._prev_obs
        return obs

    def _start(self, seed: int) -> int:
        """Return the number of the start state that a reset-state id names."""
        if self._goals is None:
            return seed
        num_tasks, num_goals = self._goals
        return seed // num_tasks % num_goals

    def step(self, action: Any) -> SingleStep:
        """Execute one action."""
        obs, reward, terminated, truncated, info = self._env.step(action)
        is_success = bool(info["success"])
        if self._rewards_success:
            reward, terminated = float(is_success), is_success
        return obs, float(reward), bool(terminated), bool(truncated), is_success

    def observe(self, raw: Any) -> dict[str, Any]:
        """Return ``states`` and ``task_descriptions``, and render the image, which is done only here.

        Returns:
            ``states`` float32 [39 + T]; with images [4], next to ``main_images`` uint8 [H, W, 3] and maybe ``objects``,
            the whole state, float32 [39].
        """
        state = raw.astype(np.float32)
        if self._camera is None:
            if self._hides_goal:
                state[_GOAL] = 0.0
            states = np.concatenate([state, self._task_code])
            return {"states": states, "task_descriptions": self._description}
        row = {
            "states": state[:_NUM_PROPRIO],
            "main_images": self._camera.draw(),
            "task_descriptions": self._description,
        }
        return {**row, "objects": state} if self._shows_objects else row

    def render(self) -> Frame | None:
        """Return the present image, uint8 [H, W, 3]."""
        # Meta-World's corner camera is mounted upside down.
        frame: Frame = np.ascontiguousarray(self._env.render()[::-1])
        return frame

    def close(self) -> None:
        """Free the simulator."""
        if self._camera is not None:
            self._camera.close()
        self._env.close()

    def _space(self, size: int) -> gymnasium.spaces.Dict:
        """Return the space of observations whose whole state has ``size`` numbers."""
        row: dict[str, gymnasium.Space[Any]] = {"task_descriptions": gymnasium.spaces.Text(max_length=256)}
        if self._camera is None:
            row["states"] = _numbers(size + self._task_code.size)
            return gymnasium.spaces.Dict(row)
        row |= {"states": _numbers(_NUM_PROPRIO), "main_images": self._camera.space}
        if self._shows_objects:
            row["objects"] = _numbers(size)
        return gymnasium.spaces.Dict(row)


class MetaWorldTasks:
    """One of several tasks at a time: reset-state ids name them, and go through all tasks' first start states first.

    Args:
        num_tasks: How many there are.
        build: Called with a task's number; returns its environment.
    """

    def __init__(self, num_tasks: int, build: Callable[[int], MetaWorldSingleEnv]) -> None:
        self._num_tasks, self._build = num_tasks, build
        self._number, self._env = 0, build(0)
        self.action_space, self.observation_space = self._env.action_space, self._env.observation_space

    def reset(self, seed: int) -> Any:
        """Start an episode of the task that ``seed`` names; return the observation."""
        number = seed % self._num_tasks
        if number != self._number:
            self._env.close()
            self._number, self._env = number, self._build(number)
        return self._env.reset(seed)

    def step(self, action: Any) -> SingleStep:
        """Execute one action."""
        return self._env.step(action)

    def observe(self, raw: Any) -> dict[str, Any]:
        """See ``MetaWorldSingleEnv``."""
        return self._env.observe(raw)

    def render(self) -> Frame | None:
        """Return the present image, uint8 [H, W, 3]."""
        return self._env.render()

    def close(self) -> None:
        """Free the simulator."""
        self._env.close()


class _Camera:
    """The camera of published policies, whose images are turned by 180 degrees.

    Args:
        env: Meta-World's; its camera is moved, also for videos.
        size: Height and width.
        is_light: Render without shadow maps and multisampling.
    """

    def __init__(self, env: Any, size: int, *, is_light: bool) -> None:
        self._mujoco: Any = require("mujoco", needed_by="env_type=metaworld")
        self._model, self._data, self._size = env.model, env.data, size
        self._model.camera(_CAMERA).pos[:] = _CAMERA_POSITION
        self._cameras = MujocoCameras(env.model, env.data, is_light=is_light)
        self.space = gymnasium.spaces.Box(0, 255, (size, size, 3), np.uint8)

    def place_marks(self) -> None:
        """Put the goal's mark where the task is now; Meta-World's reset leaves it where the episode before had it."""
        self._mujoco.mj_kinematics(self._model, self._data)

    def draw(self) -> Frame:
        """Return the present image, uint8 [H, W, 3]."""
        frame: Frame = np.ascontiguousarray(self._cameras.draw(_CAMERA, self._size)[::-1, ::-1])
        return frame

    def close(self) -> None:
        """Free the renderer."""
        self._cameras.close()


def _numbers(size: int) -> gymnasium.spaces.Box:
    return gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)


def make_metaworld_env(
    *,
    render: bool,
    task_name: str,
    task_number: int = 0,
    num_tasks: int = 1,
    image_size: int | None = None,
    is_light: bool = False,
    shows_objects: bool = False,
    hides_goal: bool = False,
    goals: tuple[int, int] | None = None,
    num_settle_steps: int = 0,
    rewards_success: bool = False,
    sentences: str = "own",
    tasks_of_episodes: tuple[str, ...] | None = None,
) -> MetaWorldSingleEnv | MetaWorldTasks:
    """Build one environment.

    Args:
        render: Whether it has to render videos.
        task_name: One of the tasks in ``TASK_DESCRIPTIONS``.
        task_number: Its place among the tasks that are learned together, from 0.
        num_tasks: How many those are; of several the observation says which one it is of.
        image_size: See ``MetaWorldSingleEnv``, as of the others.
        is_light: Render images without shadow maps and multisampling.
        shows_objects: Whether observations with images have ``objects``.
        hides_goal: Whether ``states`` have zeros where the goal is.
        goals: See ``MetaWorldSingleEnv``.
        num_settle_steps: Actions without a motion after a reset.
        rewards_success: Whether success is the reward.
        sentences: ``own`` or ``paper``.
        tasks_of_episodes: Tasks of which each episode has one, in place of ``task_name``; None keeps that.

    Raises:
        MissingPackageError: Meta-World is not installed.
    """

    def build(number: int) -> MetaWorldSingleEnv:
        code = np.eye(num_tasks, dtype=np.float32)[number] if num_tasks > 1 else np.zeros(0, np.float32)
        return MetaWorldSingleEnv(
            task_name if tasks_of_episodes is None else tasks_of_episodes[number],
            task_code=code,
            render=render,
            image_size=image_size,
            is_light=is_light,
            shows_objects=shows_objects,
            hides_goal=hides_goal,
            goals=goals,
            num_settle_steps=num_settle_steps,
            rewards_success=rewards_success,
            sentences=sentences,
        )

    return build(task_number) if tasks_of_episodes is None else MetaWorldTasks(len(tasks_of_episodes), build)


def metaworld_envs(cfg: MetaWorldEnvConfig, *, num_envs: int, first_env: int) -> SingleEnvSpec:
    """Return the environments of a section; see ``SimulatorConfig.single_envs``.

    Raises:
        ConfigError: As ``tasks_of``.
    """
    tasks = tasks_of(cfg)
    numbers = [(first_env + row) // cfg.group_size % len(tasks) for row in range(num_envs)]
    return SingleEnvSpec(
        env_type=cfg.env_type,
        factory=make_metaworld_env,
        kwargs={
            "num_tasks": 1 if cfg.image_size or cfg.task_name in SPLITS else len(tasks),
            "hides_goal": cfg.task_name in SPLITS,
            "goals": None if cfg.num_goals is None else (len(tasks), cfg.num_goals),
            "image_size": cfg.image_size,
            "is_light": cfg.render_quality == "light",
            "shows_objects": cfg.show_objects,
            "num_settle_steps": cfg.num_settle_steps,
            "rewards_success": not cfg.reward_shaping,
            "sentences": cfg.task_sentences,
            "tasks_of_episodes": tasks if cfg.task_per_episode else None,
        },
        row_kwargs=[{"task_name": tasks[number], "task_number": number} for number in numbers],
        first_env=first_env,
        num_envs=num_envs,
    )
