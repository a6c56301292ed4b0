"""Faults of the checker of environments: each rule that it no longer checks."""

from __future__ import annotations

from tests.mutation.fault import Fault

_FILE = "rlinf/envs/conformance.py"
_TESTS = ("tests/unit/envs/test_conformance.py",)


def _fault(before: str, after: str, what: str) -> Fault:
    return Fault(_FILE, before, after, _TESTS, what)


FAULTS: list[Fault] = [
    _fault(
        "tuple(value.shape) == shape and value.dtype == dtype", "True", "shapes and types of a step are not looked at"
    ),
    _fault("value.dtype == dtype\n", "True\n", "types of a step are not looked at"),
    _fault("torch.equal(prefix, executed), ", "True, ", "actions behind one that was not executed may be executed"),
    _fault("not dones[~executed].any(), ", "True, ", "actions that were not executed may end an episode"),
    _fault("not alive or stopped or whole, ", "True, ", "environments may stop without a done"),
    _fault(
        "        if self.rule.ignore_terminations:\n",
        "        if False:\n",
        "terminations that do not count may be reported",
    ),
    _fault("len(step.episodes) == len(ids), ", "True, ", "episodes may have been ended more often than they were"),
    _fault("step.final_obs is not None, ", "True, ", "the last observation may be missing"),
    _fault("set(metrics) == expected, ", "True, ", "metrics of an episode may be missing"),
    _fault("length == book.steps, ", "True, ", "lengths of episodes are not counted"),
    _fault(
        'ok = metrics.get("success_once", 0.0) >= metrics.get("success_at_end", 0.0)',
        "ok = True",
        "success at the end may be none",
    ),
]
