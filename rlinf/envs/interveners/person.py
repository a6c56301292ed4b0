"""What interveners have in common whom a person moves by a device."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rlinf.errors import ConfigError


def require_one_environment(row: int, intervener_type: str) -> None:
    """Raise a ConfigError for any environment but a worker's first: a person can drive one at a time."""
    if row > 0:
        raise ConfigError(
            f"env.*.wrappers: intervention: intervener_type={intervener_type} drives one environment, but an env "
            "worker holds several. Set total_num_envs to the number of env workers."
        )


def twist_to_action(motion: Sequence[float], gripper: float, action_dim: int) -> torch.Tensor:
    """Return the action, float32 [A], that a person's motion amounts to.

    Args:
        motion: Along x, y, z and around x, y, z, each in [-1, 1].
        gripper: -1 closes it, 1 opens it.
        action_dim: ``A``: 3 is translation, 6 also rotation; one more ends with the gripper.

    Raises:
        ConfigError: Actions are of another kind.
    """
    if action_dim not in {3, 4, 6, 7}:
        raise ConfigError(
            f"env.*.wrappers: intervention: a person's motion has 3 or 6 numbers and the gripper; actions of this "
            f"environment have {action_dim}. Register an intervener of its own, or remove the wrapper."
        )
    axes = 3 if action_dim < 6 else 6
    numbers = [max(-1.0, min(1.0, value)) for value in motion[:axes]]
    return torch.tensor(numbers + [gripper] * (action_dim - axes), dtype=torch.float32)
