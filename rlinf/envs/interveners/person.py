"""What interveners have in common whom a person moves by a device."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rlinf.config.schema.env import EnvConfig
from rlinf.config.schema.intervention import PersonIntervenerConfig
from rlinf.envs.action_conventions import convention_of
from rlinf.errors import ConfigError


def require_one_environment(row: int, intervener_type: str) -> None:
    """Raise a ConfigError for any environment but a worker's first: a person can drive one at a time."""
    if row > 0:
        raise ConfigError(
            f"env.*.wrappers: intervention: intervener_type={intervener_type} drives one environment, but an env "
            "worker holds several. Set total_num_envs to the number of env workers."
        )


def twist_to_action(
    motion: Sequence[float], gripper: float, action_dim: int, *, cfg: PersonIntervenerConfig, env: EnvConfig
) -> torch.Tensor:
    """Return the action, float32 [A], that a person's motion amounts to, in the convention of policies.

    Args:
        motion: Along x, y, z and around x, y, z, each in [-1, 1].
        gripper: -1 closes it, 1 opens it, in all environments.
        action_dim: ``A``: 3 is translation, 6 also rotation; one more ends with the gripper.
        cfg: The person's keys.
        env: The environment's configuration.

    Raises:
        ConfigError: Actions are of another kind, or which number opens the gripper is not known, or received wrongly.
    """
    if action_dim not in {3, 4, 6, 7}:
        raise ConfigError(
            f"env.*.wrappers: intervention: a person's motion has 3 or 6 numbers and the gripper; actions of this "
            f"environment have {action_dim}. Register an intervener of its own, or remove the wrapper."
        )
    axes = 3 if action_dim < 6 else 6
    numbers = [max(-1.0, min(1.0, value)) for value in motion[:axes]]
    if action_dim > axes:
        numbers.append(_gripper_number(gripper, cfg, env))
    return torch.tensor(numbers, dtype=torch.float32)


def _gripper_number(gripper: float, cfg: PersonIntervenerConfig, env: EnvConfig) -> float:
    convention = convention_of(env)
    opens, said = convention.opens, cfg.gripper_opens
    key = "env.*.wrappers: intervention: gripper_opens"
    if opens is not None and said not in {None, opens}:
        raise ConfigError(f"{key}: received {said}; {opens} opens the gripper of env_type={env.env_type}. Remove it.")
    if opens is None and said is None:
        raise ConfigError(
            f"{key}: received null; it is not known which number opens the gripper of env_type={env.env_type}. Set it "
            "to 1 or -1 in the intervener's entry."
        )
    return float(convention.gripper_number((opens or said or 0) * gripper))
