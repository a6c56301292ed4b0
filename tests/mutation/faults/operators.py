"""Faults of people who act in place of a policy: their devices, and what is made of their actions."""

from __future__ import annotations

from tests.mutation.fault import Fault

_TESTS = {
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
]
