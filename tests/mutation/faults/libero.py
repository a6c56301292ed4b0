"""Faults of LIBERO: start states, what the expert does, and what evaluations are summed up to."""

from __future__ import annotations

from tests.mutation.fault import Fault

_ENVS = "tests/unit/envs/simulators/libero"
_TESTS = {
    "rlinf/envs/simulators/libero/libero_starts.py": (f"{_ENVS}/test_libero_starts.py",),
    "rlinf/envs/simulators/libero/libero_assets.py": (f"{_ENVS}/test_libero_assets.py",),
    "rlinf/envs/simulators/libero/libero_expert.py": (f"{_ENVS}/test_libero_expert.py",),
    "rlinf/envs/simulators/libero/libero_single.py": (f"{_ENVS}/test_libero_single.py",),
}


def _fault(file: str, before: str, after: str, what: str) -> Fault:
    return Fault(file, before, after, _TESTS[file], what)


FAULTS: list[Fault] = [
    _fault(
        "rlinf/envs/simulators/libero/libero_starts.py",
        "trial, task = divmod(reset_state_id, len(self.tasks))",
        "task, trial = divmod(reset_state_id, len(self.trials))\n        task %= len(self.tasks)",
        "ids go through the start states of a task first",
    ),
    _fault(
        "rlinf/envs/simulators/libero/libero_starts.py",
        "if num_groups % len(self.tasks) == 0 else None",
        "if num_groups >= len(self.tasks) else None",
        "groups keep tasks that they cannot share evenly",
    ),
    _fault(
        "rlinf/envs/simulators/libero/libero_starts.py",
        "or len(set(numbers)) < len(numbers) ",
        "",
        "a start state may be named twice",
    ),
    _fault(
        "rlinf/envs/simulators/libero/libero_assets.py",
        "named = assets_path or os.environ.get(ASSETS_VARIABLE)",
        "named = os.environ.get(ASSETS_VARIABLE) or assets_path",
        "the variable comes before the recipe",
    ),
    _fault(
        "rlinf/envs/simulators/libero/libero_assets.py",
        'own = f"stand-ins (',
        'own = f"published (',
        "stand-ins pass for published assets",
    ),
    _fault(
        "rlinf/envs/simulators/libero/libero_expert.py",
        "closes = (is_at | is_held) & ~is_delivered",
        "closes = is_at | is_held",
        "the object is never let go",
    ),
    Fault(
        "rlinf/envs/scripted.py",
        "(way[:, 2] < _RISES_METERS).float()",
        "(way[:, 2] < 10 * _RISES_METERS).float()",
        _TESTS["rlinf/envs/simulators/libero/libero_expert.py"],
        "a low hand goes sidewise through what stands there",
    ),
    _fault(
        "rlinf/envs/simulators/libero/libero_single.py",
        "self._generator, self._pushes = np.random.default_rng(seed), []",
        "self._pushes = []",
        "disturbances depend on the episodes before",
    ),
    _fault(
        "rlinf/envs/simulators/libero/libero_single.py",
        "self._generator, self._pushes = np.random.default_rng(seed), []",
        "self._generator = np.random.default_rng(seed)",
        "a disturbance goes on in the next episode",
    ),
    _fault(
        "rlinf/envs/simulators/libero/libero_single.py",
        "if not self._pushes and self._disturbance and self._generator.random() < self._disturbance:",
        "if not self._pushes and self._disturbance and self._generator.random() > self._disturbance:",
        "disturbances come where they are not asked for",
    ),
    _fault(
        "rlinf/envs/simulators/libero/libero_single.py",
        "[self._generator.uniform(-1.0, 1.0, 3)] * _PUSH_ACTIONS",
        "[self._generator.uniform(-1.0, 1.0, 3)]",
        "a disturbance lasts for one action",
    ),
    _fault(
        "rlinf/envs/simulators/libero/libero_assets.py",
        'for file in assets.rglob("*") if file.is_file()',
        'for file in assets.glob("*") if file.is_file()',
        "what folders of the assets hold is not stated",
    ),
]
