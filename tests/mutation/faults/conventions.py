"""Faults of action conventions: numbers that mean the opposite to the simulator, to operators or in data sets."""

from __future__ import annotations

from tests.mutation.fault import Fault

_TABLE = "rlinf/envs/action_conventions.py"
_BASE = "rlinf/envs/base.py"
_PERSON = "rlinf/envs/interveners/person.py"
_CHECK = "rlinf/workers/rollout/conventions.py"
_STATISTICS = "rlinf/models/vla/norm_statistics.py"
_DELAY = "rlinf/envs/wrappers/action_delay.py"
_TESTS = {
    _DELAY: ("tests/unit/envs/test_base_conventions.py",),
    _CHECK: ("tests/unit/workers/rollout/test_conventions.py",),
    _STATISTICS: ("tests/unit/models/vla/test_norm_statistics.py",),
    _TABLE: ("tests/unit/envs/test_action_conventions.py",),
    _BASE: ("tests/unit/envs/test_base_conventions.py",),
    _PERSON: ("tests/unit/envs/interveners/test_person.py",),
    "rlinf/envs/scripted.py": ("tests/unit/envs/test_base_conventions.py",),
}


def _fault(file: str, before: str, after: str, what: str) -> Fault:
    return Fault(file, before, after, _TESTS[file], what)


FAULTS: list[Fault] = [
    _fault(
        _DELAY,
        "self.waiting[rows, :, -1] = convention_of(self.env).gripper_number(0.0)",
        "pass",
        "a hand closes while it waits for the first action",
    ),
    _fault(
        _CHECK,
        "is_unit == convention_of(env).unit_gripper",
        "is_unit != convention_of(env).unit_gripper",
        "checkpoints of the right convention are refused",
    ),
    _fault(
        _CHECK,
        'check_convention(cfg.actor.model, cfg.env.eval, "env.eval")',
        "pass",
        "evaluations are not checked",
    ),
    _fault(_CHECK, "if not cfg.runner.only_eval:", "if True:", "environments that are not stepped are checked"),
    _fault(_STATISTICS, "if abs(squares - 1.0) < _ABOUT:", "if False:", "openpi's means tell nothing"),
    _fault(_STATISTICS, "row[size - 1]", "row[-1]", "padding is taken for the gripper"),
    _fault(_TABLE, "self.opens * np.sign(gripper - 0.5)", "-self.opens * np.sign(gripper - 0.5)", "open hands close"),
    _fault(_TABLE, "np.where(gripper == 0.5, self.middle, taken)", "taken", "a half always leaves the fingers"),
    _fault(_TABLE, "(self.opens * taken + 1.0) / 2.0", "(taken + 1.0) / 2.0", "experts close the hands that they open"),
    _fault(_TABLE, "- 1 - self.num_unused], gripper]", "- 1], gripper]", "numbers without a meaning are executed"),
    _fault(_TABLE, "low[-1], high[-1] = 0.0, 1.0", "pass", "a gripper is clipped to another range than its own"),
    _fault(
        _TABLE,
        '("metaworld", NATIVE): ActionConvention(opens=-1)',
        '("metaworld", NATIVE): ActionConvention(opens=1)',
        "an operator opens where he closes",
    ),
    _fault(
        _BASE,
        "actions=self._convention.to_simulator(said),",
        "actions=said,",
        "the simulator is told another convention",
    ),
    _fault(
        _BASE,
        "actions=self._convention.to_simulator(segment.actions),",
        "actions=segment.actions,",
        "resumed episodes grip otherwise",
    ),
    _fault(
        _BASE,
        "self._collector.add_chunk(said, chunk, ",
        "self._collector.add_chunk(request.actions, chunk, ",
        "data sets have the simulator's convention",
    ),
    _fault(
        _BASE,
        "self._collector.add_chunk(segment.actions, chunk)",
        "self._collector.add_chunk(request.actions, chunk)",
        "resumed data sets have the simulator's convention",
    ),
    _fault(
        _BASE,
        "self._log.add(said, chunk.executed)",
        "self._log.add(request.actions, chunk.executed)",
        "actions are turned round twice when resumed",
    ),
    _fault(_PERSON, "(opens or said or 0) * gripper", "gripper", "an operator opens the hand that he closes"),
    _fault(_PERSON, "said not in {None, opens}", "False", "a recipe may say the opposite of a known gripper"),
    _fault(
        "rlinf/envs/scripted.py",
        "convention.to_policy(policy(obs).numpy())",
        "policy(obs).numpy()",
        "scripts are taken for policies of another convention",
    ),
]
