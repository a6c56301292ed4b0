"""Faults of what is recorded of environments, of their wrappers, and of each kind of environment."""

from __future__ import annotations

from tests.mutation.fault import Fault

_TESTS = {
    "base.py": ("tests/unit/envs/test_base_rules.py", "tests/unit/envs/test_video.py"),
    "process_pool.py": ("tests/unit/envs/test_process_pool.py", "tests/unit/envs/test_process_main.py"),
    "video.py": ("tests/unit/envs/test_video.py",),
    "episode_collector.py": ("tests/unit/envs/test_episode_collector.py",),
    "simulators/gymnasium_single.py": (
        "tests/unit/envs/simulators/test_gymnasium_single.py",
        "tests/unit/envs/test_episodes_success.py",
    ),
    "simulators/metaworld/metaworld_single.py": (
        "tests/unit/envs/simulators/metaworld/test_metaworld_single.py",
        "tests/unit/envs/simulators/metaworld/test_metaworld_env.py",
    ),
    "simulators/mujoco_cameras.py": ("tests/unit/envs/simulators/test_mujoco_cameras.py",),
    "simulators/metaworld/metaworld_expert.py": ("tests/unit/envs/simulators/metaworld/test_metaworld_expert.py",),
    "simulators/frankasim/frankasim_arm.py": (
        "tests/unit/envs/simulators/frankasim/test_frankasim_single.py",
        "tests/unit/envs/simulators/frankasim/test_frankasim_env.py",
    ),
    "simulators/frankasim/frankasim_single.py": (
        "tests/unit/envs/simulators/frankasim/test_frankasim_single.py",
        "tests/unit/envs/simulators/frankasim/test_frankasim_env.py",
    ),
    "wrappers/action_delay.py": ("tests/unit/envs/wrappers/test_action_delay.py",),
    "wrappers/action_repeat.py": ("tests/unit/envs/wrappers/test_action_repeat.py",),
    "wrappers/intervention.py": ("tests/unit/envs/wrappers/test_intervention.py",),
    "interveners/scripted.py": ("tests/unit/envs/interveners/test_scripted_intervener.py",),
    "realworld/franka.py": ("tests/unit/envs/realworld/test_franka.py",),
    "realworld/dummy.py": ("tests/unit/envs/realworld/test_dummy.py",),
    "realworld/poses.py": ("tests/unit/envs/realworld/test_poses.py",),
    "realworld/client.py": ("tests/unit/envs/realworld/test_client.py",),
    "realworld/expert.py": ("tests/unit/envs/realworld/test_expert.py",),
}


def _fault(file: str, before: str, after: str, what: str) -> Fault:
    return Fault(f"rlinf/envs/{file}", before, after, _TESTS[file], what)


FAULTS: list[Fault] = [
    # Batch simulators.
    _fault(
        "base.py",
        "chunk.successes[:, column] = active & to_numpy(",
        "chunk.successes[:, column] = to_numpy(",
        "environments at rest succeed",
    ),
    _fault(
        "base.py",
        "        order = np.argsort(rows)\n        chunk.final_ids = rows[order]\n",
        "        order = np.arange(len(rows))\n        chunk.final_ids = rows[order]\n",
        "episodes are reported in the order in which they end",
    ),
    _fault(
        "base.py",
        "chunk.obs = put_rows(obs, resting, take_rows(chunk.obs, resting)) if len(resting) else obs",
        "chunk.obs = obs",
        "an environment at rest shows another state",
    ),
    _fault(
        "base.py",
        "self._frames([row for row in self._recorder.rows if active[row]])",
        "self._frames(list(self._recorder.rows))",
        "environments at rest are rendered",
    ),
    _fault(
        "base.py",
        "steps = request.steps + column + 1\n",
        "steps = request.steps + column\n",
        "episodes of batch simulators are one step too long",
    ),
    # Videos.
    _fault(
        "video.py",
        "number=episode.number + 1, frame=chunk.reset_frames.get(row)",
        "number=episode.number, frame=chunk.reset_frames.get(row)",
        "all episodes go into one video",
    ),
    _fault(
        "video.py",
        "number=episode.number + 1, frame=chunk.reset_frames.get(row)",
        "number=episode.number + 1, frame=None",
        "videos of later episodes begin after their first step",
    ),
    _fault(
        "video.py",
        "min(max(cfg.num_videos - first_env, 0), num_envs)",
        "min(cfg.num_videos, num_envs)",
        "every worker records its first environments",
    ),
    _fault(
        "video.py",
        "self._latest[row] = frames[min(index, len(frames) - 1)]",
        "self._latest[row] = frames[-1]",
        "tiles show the last frame of a chunk throughout",
    ),
    _fault(
        "video.py",
        'name = f"epoch_{self._epoch:06d}_env_{self._first_env + row:04d}_episode_{number:03d}.mp4"',
        'name = f"epoch_{self._epoch:06d}_env_{row:04d}_episode_{number:03d}.mp4"',
        "videos of different workers have one name",
    ),
    _fault("video.py", "self._return += reward\n", "self._return = reward\n", "the return that is drawn is the reward"),
    _fault(
        "video.py",
        "self._reports_success = self._reports_success or chunk.reports_success",
        "self._reports_success = chunk.reports_success",
        "a task that was solved is no longer said to be",
    ),
    # Collected episodes.
    _fault(
        "episode_collector.py",
        "                self._seen[row] = after\n",
        "",
        "every frame shows the episode's first state",
    ),
    _fault(
        "episode_collector.py",
        "action = np.atleast_1d(np.asarray(actions[row, column]))",
        "action = np.atleast_1d(np.asarray(actions[row, 0]))",
        "every frame has the first action of its chunk",
    ),
    _fault(
        "episode_collector.py",
        'not any(frame["next.success"][0] for frame in frames)',
        'not frames[-1]["next.success"][0]',
        "a success before the end does not count",
    ),
    _fault(
        "episode_collector.py",
        "                self._begin(row, _row(chunk.obs, row))\n",
        "",
        "an episode holds the frames of the one before",
    ),
    _fault(
        "episode_collector.py",
        '"next.terminated": np.array([terminated]),',
        '"next.terminated": np.array([terminated or truncated]),',
        "a truncation is collected as a termination",
    ),
    # Wrappers.
    _fault(
        "wrappers/action_delay.py",
        "            self._rest(step.final_ids)\n",
        "            pass\n",
        "delayed actions reach the next episode",
    ),
    _fault(
        "wrappers/action_delay.py",
        "        self._rest(rows)\n",
        "        pass\n",
        "delayed actions reach the next rollout epoch",
    ),
    _fault(
        "wrappers/action_repeat.py",
        "executed=executed[..., 0],",
        "executed=executed.all(-1),",
        "an action that an end interrupts counts as not executed",
    ),
    _fault(
        "wrappers/action_repeat.py",
        'length = -(-episode["episode_len"] // self.cfg.num_repeats)',
        'length = episode["episode_len"] // self.cfg.num_repeats',
        "an interrupted action is missing from the episode's length",
    ),
    _fault(
        "wrappers/intervention.py",
        "            self.steps[row] += 1\n",
        "            self.steps[row] += 1\n            self.shown[row] = _row(step.obs, 0)\n",
        "operators see the first environment",
    ),
    # The scripted operator.
    _fault(
        "interveners/scripted.py",
        "self.best = max(self.best, situation.reward)",
        "self.best = situation.reward",
        "a reward that rises again counts as progress",
    ),
    _fault(
        "interveners/scripted.py",
        "        self.stalled = 0\n        return action\n",
        "        return action\n",
        "an intervention does not give the policy new time",
    ),
    _fault(
        "interveners/scripted.py",
        "        if situation.step == 0:\n            return\n",
        "",
        "the reward before an episode counts in it",
    ),
    _fault(
        "interveners/scripted.py",
        "        self.best = -math.inf\n        self.stalled = 0\n",
        "        self.best = -math.inf if not hasattr(self, 'best') else self.best\n        self.stalled = 0\n",
        "progress is measured by the episode before",
    ),
    # Kinds of environments.
    _fault(
        "simulators/gymnasium_single.py",
        "None if success is None else bool(success)",
        "bool(success)",
        "a simulator that is silent about success reports failure",
    ),
    _fault(
        "simulators/gymnasium_single.py",
        "return self._env.reset(seed=seed)[0]",
        "return self._env.reset()[0]",
        "start states do not follow from their seeds",
    ),
    _fault(
        "simulators/gymnasium_single.py",
        "return obs, float(reward), bool(terminated), bool(truncated),",
        "return obs, float(reward), bool(terminated or truncated), False,",
        "a simulator's truncation counts as termination",
    ),
    _fault(
        "simulators/metaworld/metaworld_single.py",
        "        obs[18:36] = env._prev_obs\n",
        "",
        "the first observation holds a frame of the episode before",
    ),
    _fault(
        "simulators/metaworld/metaworld_single.py",
        "env.max_path_length = _NO_LIMIT",
        "env.max_path_length = 500",
        "the simulator ends episodes by itself",
    ),
    _fault(
        "simulators/metaworld/metaworld_single.py",
        "np.eye(num_tasks, dtype=np.float32)[number]",
        "np.eye(num_tasks, dtype=np.float32)[0]",
        "tasks learned together cannot be told apart",
    ),
    _fault(
        "simulators/metaworld/metaworld_single.py",
        "        self._model.camera(_CAMERA).pos[:] = _CAMERA_POSITION\n",
        "",
        "images are taken from elsewhere than those of published policies",
    ),
    _fault(
        "simulators/metaworld/metaworld_single.py",
        "            self._camera.place_marks()\n",
        "            pass\n",
        "the first image marks the goal of the episode before",
    ),
    _fault(
        "simulators/metaworld/metaworld_single.py",
        "self._cameras.draw(_CAMERA, self._size)[::-1, ::-1]",
        "self._cameras.draw(_CAMERA, self._size)[::-1]",
        "images are mirrored",
    ),
    _fault(
        "simulators/metaworld/metaworld_single.py",
        '"states": state[:_NUM_PROPRIO],',
        '"states": state[: _NUM_PROPRIO + 3],',
        "the state tells where the object is that images are to show",
    ),
    _fault(
        "simulators/metaworld/metaworld_single.py",
        "MujocoCameras(env.model, env.data, is_light=is_light)",
        "MujocoCameras(env.model, env.data, is_light=False)",
        "light images are not light",
    ),
    _fault(
        "simulators/metaworld/metaworld_single.py",
        '"num_tasks": 1 if cfg.image_size or cfg.task_name in SPLITS else len(tasks),',
        '"num_tasks": 1,',
        "tasks learned together cannot be told apart without images",
    ),
    _fault(
        "simulators/metaworld/metaworld_single.py",
        '"hides_goal": cfg.task_name in SPLITS,',
        '"hides_goal": False,',
        "the goal of meta-learning is shown",
    ),
    _fault(
        "simulators/metaworld/metaworld_single.py",
        "return seed // num_tasks % num_goals",
        "return seed % num_goals",
        "a task that groups share misses some of its start states",
    ),
    _fault(
        "simulators/mujoco_cameras.py",
        "            renderer._gl_context.make_current()\n"
        "            renderer._mjr_context.free()\n"
        "            renderer._mjr_context = None\n",
        "",
        "closing the cameras of one scene takes the textures of another",
    ),
    _fault(
        "simulators/metaworld/metaworld_single.py",
        "        number = seed % self._num_tasks\n",
        "        number = seed // self._num_tasks % self._num_tasks\n",
        "start states in order do not go through all tasks first",
    ),
    _fault(
        "simulators/metaworld/metaworld_single.py",
        "            self._number, self._env = number, self._build(number)\n",
        "            self._env = self._build(number)\n",
        "the task of the first episode is built again at each reset, and others are taken for it",
    ),
    _fault(
        "simulators/metaworld/metaworld_single.py",
        "reward, terminated = float(is_success), is_success",
        "reward = float(is_success)",
        "an episode goes on behind its success",
    ),
    _fault(
        "simulators/metaworld/metaworld_single.py",
        "        for _ in range(self._num_settle_steps):\n",
        "        for _ in range(0):\n",
        "episodes begin before things lie still",
    ),
    _fault(
        "simulators/metaworld/metaworld_single.py",
        '"rewards_success": not cfg.reward_shaping,',
        '"rewards_success": cfg.reward_shaping,',
        "reward shaping is off where it is asked for",
    ),
    _fault(
        "simulators/metaworld/metaworld_expert.py",
        'env.task_sentences == "paper"',
        "False",
        "the expert does the wrong one of two tasks that are said alike",
    ),
    _fault(
        "simulators/metaworld/metaworld_expert.py",
        'obs["objects" if "objects" in obs else "states"]',
        'obs["states"]',
        "the expert of what is seen acts on the robot's own state",
    ),
    _fault(
        "simulators/metaworld/metaworld_expert.py",
        "env.image_size and not env.show_objects:",
        "env.image_size and env.show_objects:",
        "the expert is refused where it sees the objects",
    ),
    _fault(
        "simulators/frankasim/frankasim_arm.py",
        "        self._plan.qpos[:] = self.data.qpos\n",
        "",
        "the arm's plan goes on from the episode before",
    ),
    _fault(
        "simulators/frankasim/frankasim_arm.py",
        "np.clip(self._target + MAX_STEP_METERS * action[:3], *WORKSPACE)",
        "self._target + MAX_STEP_METERS * action[:3]",
        "the simulated hand leaves its workspace",
    ),
    _fault(
        "simulators/frankasim/frankasim_single.py",
        "place = [*generator.uniform(*_CUBE_AREA), CUBE_HALF_SIZE]",
        "place = [*_CUBE_AREA.mean(0), CUBE_HALF_SIZE]",
        "the cube always lies in the middle",
    ),
    _fault(
        "simulators/frankasim/frankasim_single.py",
        'row["states"] = raw[:7]',
        'row["states"] = raw[6:]',
        "with cameras the states show the cube",
    ),
    # Robots.
    _fault(
        "realworld/franka.py",
        "        return self._safe(goal), float(action[-1] > 0) if moves else None",
        "        return goal, float(action[-1] > 0) if moves else None",
        "actions lead out of the robot's workspace",
    ),
    _fault(
        "realworld/franka.py",
        "        action = np.clip(action, -1.0, 1.0)\n",
        "",
        "the length of an action along an axis is not limited",
    ),
    _fault(
        "realworld/franka.py",
        "        lift[2] = max(lift[2], goal[2])\n",
        "        lift[2] = goal[2]\n",
        "a robot above its start goes down before it goes sideways",
    ),
    _fault(
        "realworld/franka.py",
        "float(np.linalg.norm(state.wrench[:3])) > limit",
        "float(np.max(state.wrench[:3])) > limit",
        "only a force along a positive axis stops the robot",
    ),
    _fault(
        "realworld/franka.py",
        "is_blocked and not is_over, success",
        "is_blocked, success",
        "a success under force is also cut off",
    ),
    _fault(
        "realworld/franka.py",
        "abs(action[-1]) > _GRIPPER_THRESHOLD",
        "abs(action[-1]) > 0",
        "noise opens and closes the fingers",
    ),
    _fault(
        "realworld/franka.py",
        "        self._client.set_gripper(1.0)\n",
        "",
        "an episode begins with the gripper as it was",
    ),
    _fault(
        "realworld/poses.py",
        "multiply(turns[2], multiply(turns[1], turns[0]))",
        "multiply(turns[0], multiply(turns[1], turns[2]))",
        "roll, pitch and yaw turn around the moved axes",
    ),
    _fault(
        "realworld/poses.py",
        "np.array([x, y, z]) * (1.0 if w >= 0 else -1.0)",
        "np.array([x, y, z])",
        "the arm turns the longer way round",
    ),
    _fault(
        "realworld/client.py",
        "        if connection.num_users == 0:\n",
        "        if connection.num_users >= 0:\n",
        "the end of an evaluation closes the robot's connection",
    ),
    _fault(
        "realworld/dummy.py",
        "        if self.pose[2] >= top:\n            return np.array([*position[:2], top])\n",
        "",
        "the arm slips into the hole from beside it",
    ),
]
