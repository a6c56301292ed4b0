"""Faults of CALVIN: chains, start states, its adapter, its keys, and what evaluations are summed up to."""

from __future__ import annotations

from tests.mutation.fault import Fault

_GUESTS = "tests/unit/envs/guests"
_TESTS = {
    "rlinf/envs/guests/calvin.py": (f"{_GUESTS}/test_calvin.py",),
    "rlinf/envs/guests/calvin_chains.py": (f"{_GUESTS}/test_calvin_chains.py",),
    "rlinf/envs/guests/calvin_tasks.py": (f"{_GUESTS}/test_calvin_chains.py",),
    "rlinf/envs/guests/rows.py": (f"{_GUESTS}/test_calvin.py",),
    "rlinf/envs/simulators/calvin_env.py": ("tests/unit/envs/simulators/test_calvin_env.py",),
    "evaluations/chains.py": ("tests/unit/examples/test_summarize_chains.py",),
}


def _fault(file: str, before: str, after: str, what: str) -> Fault:
    return Fault(file, before, after, _TESTS[file], what)


FAULTS: list[Fault] = [
    _fault(
        "rlinf/envs/guests/calvin.py",
        "taken[6] = 1.0 if taken[6] > 0 else -1.0",
        "taken[6] = np.sign(taken[6])",
        "the gripper is told zero",
    ),
    _fault(
        "rlinf/envs/guests/calvin.py",
        "self._task_steps == self._max_task_steps",
        "self._task_steps - 1 == self._max_task_steps",
        "a task has one step more",
    ),
    _fault(
        "rlinf/envs/guests/calvin.py",
        "scene[group % len(scene)]",
        "scene[0]",
        "all groups have the first table",
    ),
    _fault(
        "rlinf/envs/guests/calvin.py",
        "            return self.row, 0.0, True, False, True\n",
        "            return self.row, 1.0, True, False, True\n",
        "what is done behind the end is rewarded",
    ),
    _fault(
        "rlinf/envs/guests/calvin.py",
        "None if joint_states else NUM_HAND_STATES",
        "None",
        "states tell of the joints where the policy has no room for them",
    ),
    _fault(
        "rlinf/envs/guests/rows.py",
        "(first_env + row) // group_size}",
        "first_env + row}",
        "environments of a group are built unlike",
    ),
    _fault(
        "rlinf/envs/guests/calvin.py",
        "    def _begin_task(self) -> None:\n        self._task_steps = 0\n",
        "    def _begin_task(self) -> None:\n",
        "the steps of all tasks count together",
    ),
    _fault(
        "rlinf/envs/guests/calvin.py",
        "            self._waits = True\n",
        "",
        "actions chosen for another sentence are executed",
    ),
    _fault(
        "rlinf/envs/guests/calvin.py",
        "self._num_solved, self._waits = 0, False",
        "self._num_solved = 0",
        "an episode begins as the last one ended, waiting",
    ),
    _fault(
        "rlinf/envs/guests/calvin.py",
        "        p.stepSimulation(physicsClientId=client)\n",
        "",
        "pairs of bodies that were close are remembered",
    ),
    _fault(
        "rlinf/envs/guests/calvin.py",
        "self._chains[seed % len(self._chains)]",
        "self._chains[0]",
        "every seed starts the same chain",
    ),
    _fault("rlinf/envs/guests/calvin.py", '"use_egl": False,', '"use_egl": True,', "the simulator asks for a GPU"),
    _fault(
        "rlinf/envs/guests/calvin_chains.py",
        'text.encode("utf-16-le")',
        "text.encode()",
        "start states have other random numbers than the published ones",
    ),
    _fault(
        "rlinf/envs/guests/calvin_chains.py",
        "return {**symbols, **effects[0]} if len(effects) == 1 else None",
        "return {**symbols, **effects[0]} if effects else None",
        "a chain may go on where several rules apply",
    ),
    _fault(
        "rlinf/envs/guests/calvin_chains.py",
        "generator = np.random.RandomState(number)",
        "generator = np.random.RandomState(number + 1)",
        "chains are sampled by another seed",
    ),
    _fault(
        "rlinf/envs/guests/calvin_chains.py",
        'int(symbols["red_block"] == "table")',
        "0",
        "two blocks begin at one place",
    ),
    _fault(
        "rlinf/envs/guests/calvin_tasks.py",
        '(("on", 1), ("off", 0))',
        '(("on", 0), ("off", 1))',
        "turning on turns off",
    ),
    _fault(
        "rlinf/envs/guests/rows.py",
        "        self._rows = [_observed(row) for row in self._rows]\n",
        "        self._rows = [row if isinstance(row, dict) else {} for row in self._rows]\n",
        "rows that are not observed within a chunk are lost",
    ),
    _fault(
        "rlinf/envs/simulators/calvin_env.py",
        "len(set(cfg.cameras)) < len(cfg.cameras)",
        "False",
        "a camera may be named twice",
    ),
    _fault(
        "rlinf/envs/simulators/calvin_env.py",
        "cfg.source_path or os.environ.get(SOURCE_VARIABLE)",
        "os.environ.get(SOURCE_VARIABLE) or cfg.source_path",
        "a variable counts before the recipe",
    ),
    _fault("evaluations/chains.py", "tasks[: length + 1]", "tasks[:length]", "a task that fails was not tried"),
    _fault(
        "evaluations/chains.py",
        "sum(length >= count for length in lengths)",
        "sum(length == count for length in lengths)",
        "longer chains do not count for shorter ones",
    ),
    _fault("evaluations/chains.py", " / env.reward_coef)", ")", "lengths are scaled as rewards are"),
]
