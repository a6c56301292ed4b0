"""Faults of people who act in place of a policy: their devices, and what is made of their actions."""

from __future__ import annotations

from tests.mutation.fault import Fault

_TESTS = {
    "envs/realworld/gello.py": ("tests/unit/envs/realworld/test_gello.py",),
    "config/checks/intervention_checks.py": ("tests/unit/config/checks/test_intervention_checks.py",),
    "envs/episode_collector.py": (
        "tests/unit/envs/test_episode_collector_saved.py",
        "tests/unit/envs/test_episode_collector.py",
    ),
    "runners/collection.py": ("tests/unit/runners/test_collection.py",),
    "envs/realworld/operator_marks.py": ("tests/unit/envs/realworld/test_operator_marks.py",),
    "envs/realworld/franka.py": ("tests/unit/envs/realworld/test_operator_marks.py",),
    "envs/realworld/robot.py": ("tests/unit/envs/realworld/test_operator_marks.py",),
    "config/checks/hardware_checks.py": (
        "tests/unit/config/checks/test_hardware_checks.py",
        "tests/unit/config/checks/test_collect_task.py",
    ),
    "envs/base.py": ("tests/unit/envs/wrappers/test_intervention.py",),
    "envs/wrappers/frame_stack.py": ("tests/unit/envs/wrappers/test_intervention.py",),
    "envs/wrappers/action_delay.py": ("tests/unit/envs/wrappers/test_intervention.py",),
    "envs/wrappers/intervention.py": ("tests/unit/envs/wrappers/test_intervention.py",),
    "data/messages/embodied.py": ("tests/unit/envs/wrappers/test_intervention.py",),
    "workers/actor/imitation_learner.py": ("tests/unit/workers/actor/test_imitation_learner.py",),
    "config/schema/root.py": ("tests/unit/config/checks/test_collection_checks.py",),
    "config/checks/collection_checks.py": ("tests/unit/config/checks/test_collection_checks.py",),
    "envs/interveners/spacemouse.py": ("tests/unit/envs/interveners/test_spacemouse.py",),
}


def _fault(file: str, before: str, after: str, what: str) -> Fault:
    return Fault(f"rlinf/{file}", before, after, _TESTS[file], what)


FAULTS: list[Fault] = [
    _fault(
        "envs/interveners/spacemouse.py",
        "        if state.t == self._time:\n            self._is_closed.wait(_POLL_SECONDS)\n            return\n",
        "        self._is_closed.wait(0.05)\n",
        "reports of a SpaceMouse are read more slowly than they come",
    ),
    _fault(
        "envs/interveners/spacemouse.py",
        "if is_at_rest and click is None and not (newest.left or newest.right):",
        "if is_at_rest and not (newest.left or newest.right):",
        "a click between two actions is lost",
    ),
    _fault(
        "envs/interveners/spacemouse.py",
        "            self._error = error\n",
        "            del error\n",
        "a SpaceMouse that is pulled out seems to be at rest, or still pushed",
    ),
    # Operators within chunks.
    _fault(
        "envs/base.py",
        "                goes_on[final_ids.numpy()] = False\n",
        "                pass\n",
        "a chunk goes on in the next episode",
    ),
    _fault(
        "envs/base.py",
        "resting=torch.from_numpy(~goes_on)",
        "resting=None",
        "operators are asked for actions that are not executed",
    ),
    _fault(
        "envs/wrappers/frame_stack.py",
        "self.frames[key][:, goes_on] = frames[:, goes_on]",
        "pass",
        "frames within a chunk are stacked where an operator may act",
    ),
    _fault(
        "envs/wrappers/action_delay.py",
        "            self.waiting[self.resting] = 0\n",
        "            pass\n",
        "actions of a chunk that has ended are executed in the next episode",
    ),
    _fault(
        "data/messages/embodied.py",
        "order = torch.argsort(final_ids)",
        "order = torch.arange(len(final_ids))",
        "episodes that end within a chunk are reported in the order in which they end",
    ),
    _fault(
        "workers/actor/imitation_learner.py",
        "            inputs[_IMITATED] = intervened\n",
        "            pass\n",
        "the policy imitates its own actions next to the operator's",
    ),
    _fault(
        "config/schema/root.py",
        "            return 1\n        return self.actor.model.num_action_chunks",
        "            pass\n        return self.actor.model.num_action_chunks",
        "scripts are expected to choose whole chunks",
    ),
    _fault(
        "config/checks/collection_checks.py",
        "not isinstance(cfg.env.eval, RealWorldEnvConfig | RobotEnvConfig)",
        "False",
        "an operator alone is accepted where it is not known how to rest",
    ),
    # Marks of operators.
    _fault(
        "envs/realworld/operator_marks.py",
        "return mark, reward + float(mark) - float(success), True",
        "return mark, reward + float(mark) - float(success), mark",
        "an episode that the operator marks as a failure goes on",
    ),
    _fault(
        "envs/realworld/operator_marks.py",
        "mark, self._mark = self._mark, None",
        "mark = self._mark",
        "a mark counts for later actions, too",
    ),
    _fault(
        "envs/realworld/franka.py",
        "        self._marks.begin()\n",
        "",
        "what is marked while the arm travels ends the next episode",
    ),
    _fault(
        "envs/realworld/robot.py",
        "return state, reward, is_over, False, success",
        "return state, reward, bool(solved), False, bool(solved)",
        "marks do not count for robots of other kinds",
    ),
    _fault(
        "config/checks/hardware_checks.py",
        "(moves and key in KEYBOARD_KEYS)",
        "False",
        "a key moves the arm and ends the episode",
    ),
    _fault(
        "config/checks/hardware_checks.py",
        "if env.data_collection.enabled and env.data_collection.only_success:",
        "if False:",
        "episodes that can never be successful are all dropped",
    ),
    # Data sets of training.
    _fault(
        "envs/episode_collector.py",
        "            if part_step(part) > step:\n",
        "            if False:\n",
        "what a killed run has collected after its checkpoint is collected again",
    ),
    _fault(
        "envs/episode_collector.py",
        '*self._root.parent.glob(f".{self._root.name}*.tmp")',
        "",
        "torn parts of a killed run stay",
    ),
    _fault(
        "runners/collection.py",
        "or part_step(part) > step:",
        "or False:",
        "parts of workers that are not there any more are joined a second time",
    ),
    _fault(
        "runners/collection.py",
        "if checkpoint is None or not part.name",
        "if not part.name",
        "a new run takes over the episodes of one that was killed",
    ),
    _fault(
        "runners/collection.py",
        "if last_step is None or not 0 < last_step <= step:",
        "if last_step is None:",
        "a published data set gets episodes that it holds already",
    ),
    _fault(
        "runners/collection.py",
        "key=lambda part: (part_step(part), part.name)",
        "key=lambda part: part.name",
        "episodes are ordered by workers, not by steps",
    ),
    # The leader arm.
    _fault(
        "envs/realworld/gello.py",
        "np.array(self.cfg.joint_signs) * (angles[:count] - np.array(self.cfg.joint_offsets))",
        "np.array(self.cfg.joint_signs) * angles[:count] - np.array(self.cfg.joint_offsets)",
        "offsets of a leader arm's joints have the sign of the joint",
    ),
    _fault(
        "envs/realworld/gello.py",
        "way = self._robot_start[:3] + leader[:3] - self._leader_start[:3] - robot[:3]",
        "way = leader[:3] - self._leader_start[:3]",
        "the robot repeats the leader arm's whole way at every action",
    ),
    _fault(
        "envs/realworld/gello.py",
        "elif self._num_still >= self.cfg.release_steps:",
        "elif False:",
        "the policy never acts again",
    ),
    _fault(
        "envs/realworld/gello.py",
        "return -1.0 if pulled > 0.5 else 1.0",
        "return 1.0 if pulled > 0.5 else -1.0",
        "the trigger opens the gripper",
    ),
    _fault(
        "envs/realworld/gello.py",
        "(-0.0825, -_QUARTER, 0.384)",
        "(0.0825, -_QUARTER, 0.384)",
        "the elbow of the arm bends the wrong way",
    ),
    _fault(
        "config/checks/intervention_checks.py",
        "        if len(numbers) != 7:\n",
        "        if False:\n",
        "a leader arm may lack a joint",
    ),
]
