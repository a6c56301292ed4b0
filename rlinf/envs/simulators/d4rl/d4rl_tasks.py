"""Tasks of D4RL by their names: their environments, and the returns that scores are measured by; imports no torch."""

from __future__ import annotations

import re

from rlinf.errors import ConfigError
from rlinf.registry import did_you_mean

# d4rl/infos.py of github.com/Farama-Foundation/D4RL, REF_MIN_SCORE and REF_MAX_SCORE: the same for all data sets and
# versions of a family. The first is the mean return of uniformly random actions, the second of an expert.
REFERENCE_RETURNS: dict[str, tuple[float, float]] = {
    "ant": (-325.6, 3879.7),
    "antmaze": (0.0, 1.0),
    "door": (-56.512833, 2880.5693087298737),
    "halfcheetah": (-280.178953, 12135.0),
    "hammer": (-274.856578, 12794.134825156867),
    "hopper": (-20.272305, 3234.3),
    "kitchen": (0.0, 4.0),
    "pen": (96.262799, 3076.8331017826877),
    "relocate": (-6.425911, 4233.877797728884),
    "walker2d": (1.629008, 4592.3),
}
"""Returns of a random and of an expert policy, by the first word of a task's name."""

ENVIRONMENTS = {
    "halfcheetah": "HalfCheetah-v4",
    "hopper": "Hopper-v4",
    "pen": "AdroitHandPen-v1",
    "walker2d": "Walker2d-v4",
}
"""Gymnasium's ids of the environments with the dynamics and observations that the recordings have. The ant of its mazes
is another one: its motors are five times as strong (150 for 30) and its steps half as long (0.05 s for 0.1 s)."""

MODULES = {"pen": "gymnasium_robotics"}
"""Packages that register environments of their own."""

_NAME = re.compile(r"(?P<family>[a-z0-9]+)-[a-z-]+-v[0-2]")


def reference_returns(task_name: str) -> tuple[float, float]:
    """Return what a random and an expert policy return in a task of D4RL.

    Raises:
        ConfigError: No such task is known.
    """
    found = _NAME.fullmatch(task_name)
    if found is None or found["family"] not in REFERENCE_RETURNS:
        guess = did_you_mean(task_name.partition("-")[0], sorted(REFERENCE_RETURNS))
        raise ConfigError(
            f"env.*.task_name: D4RL has no task '{task_name}'.{guess} Allowed: a name such as hopper-medium-v2, of "
            f"{', '.join(sorted(REFERENCE_RETURNS))}."
        )
    return REFERENCE_RETURNS[found["family"]]


def environment_id(task_name: str) -> str:
    """Return Gymnasium's id of the environment of a task.

    Raises:
        ConfigError: Gymnasium has none that is the same.
    """
    low, high = reference_returns(task_name)
    family = task_name.partition("-")[0]
    if family not in ENVIRONMENTS:
        raise ConfigError(
            f"env.*.task_name: received '{task_name}'; allowed: tasks of {', '.join(sorted(ENVIRONMENTS))}, whose "
            "environments Gymnasium and Gymnasium-Robotics have as they were recorded. For one of your own set "
            f"env_type=gymnasium, its id in init_params, and reference_returns=[{low:g}, {high:g}]."
        )
    return ENVIRONMENTS[family]


def environment_module(task_name: str) -> str | None:
    """Return the package that registers the environment of a task; None for Gymnasium itself."""
    return MODULES.get(task_name.partition("-")[0])
