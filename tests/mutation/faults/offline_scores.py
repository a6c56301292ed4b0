"""Faults of D4RL's tasks: scores, environments, and the scaling of recorded rewards."""

from __future__ import annotations

from tests.mutation.fault import Fault

_TASKS = ("tests/unit/envs/simulators/d4rl/test_d4rl_tasks.py",)
_ENV = ("tests/unit/envs/simulators/d4rl/test_d4rl_env.py",)
_DATA = ("tests/unit/data/datasets/test_d4rl.py",)

FAULTS: list[Fault] = [
    Fault(
        "rlinf/envs/episodes.py",
        "100.0 * (total - low) / (high - low)",
        "100.0 * (total - low) / high",
        _TASKS,
        "scores are measured from zero",
    ),
    Fault(
        "rlinf/envs/simulators/d4rl/d4rl_tasks.py",
        "if family not in ENVIRONMENTS:",
        "if family not in REFERENCE_RETURNS:",
        _TASKS,
        "families without an environment are accepted",
    ),
    Fault(
        "rlinf/envs/simulators/d4rl/d4rl_env.py",
        "cfg.reference_returns or list(",
        "list(",
        _ENV,
        "the recipe's reference returns are ignored",
    ),
    Fault(
        "rlinf/envs/episodes.py",
        "normalized_score(total, self._reference)",
        "normalized_score(total * self._reward_coef, self._reference)",
        _ENV,
        "scores are those of shaped rewards",
    ),
    Fault(
        "rlinf/data/datasets/d4rl.py",
        "ends[:-1] |= gaps",
        "ends[1:] |= gaps",
        _DATA,
        "an episode is cut a step late",
    ),
    Fault(
        "rlinf/data/datasets/episodes.py",
        "spread = max(returns) - min(returns)",
        "spread = max(returns)",
        _DATA,
        "returns are scaled by the highest",
    ),
    Fault(
        "rlinf/data/datasets/episodes.py",
        "rewards=episode.rewards * scale + cfg.reward_offset",
        "rewards=(episode.rewards + cfg.reward_offset) * scale",
        _DATA,
        "the offset is scaled",
    ),
    Fault(
        "rlinf/envs/simulators/d4rl/d4rl_pen.py",
        "terminated or bool(obs[_HEIGHT] < _DROPPED_METERS)",
        "terminated",
        _ENV,
        "episodes go on with a dropped pen",
    ),
    Fault(
        "rlinf/envs/simulators/d4rl/d4rl_env.py",
        'PenSingleEnv if cfg.task_name.startswith("pen-") else GymnasiumSingleEnv',
        "GymnasiumSingleEnv",
        _ENV,
        "the pen's task is Gymnasium's own",
    ),
    Fault(
        "rlinf/envs/simulators/d4rl/d4rl_tasks.py",
        'MODULES.get(task_name.partition("-")[0])',
        "MODULES.get(task_name)",
        _TASKS,
        "the package of the hand is not imported",
    ),
]
