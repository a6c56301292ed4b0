"""What policies take from observations, with errors that name the key and what the environment shows."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rlinf.data.messages.embodied import Observation
from rlinf.errors import EnvironmentFailure


def image_of(obs: Observation, key: str) -> torch.Tensor:
    """Return a camera's images, uint8 [B, H, W, 3].

    Raises:
        EnvironmentFailure: There are none.
    """
    image = obs.get(key)
    if not isinstance(image, torch.Tensor) or image.dtype != torch.uint8 or image.ndim != 4 or image.shape[-1] != 3:
        raise _failure(key, obs, "image_keys must name uint8 [B, H, W, 3]")
    return image


def states_of(obs: Observation, size: int) -> torch.Tensor:
    """Return the states, [B, S].

    Args:
        obs: What the environment shows.
        size: ``S``, the numbers that the model's statistics have.

    Raises:
        EnvironmentFailure: There are none, or of another length.
    """
    states = obs.get("states")
    if not isinstance(states, torch.Tensor) or states.shape[-1] != size:
        raise _failure("states", obs, f"the model reads float32 [B, {size}], as its statistics or state_dim say")
    return states


def tasks_of(obs: Observation) -> Sequence[str]:
    """Return ``B`` sentences.

    Raises:
        EnvironmentFailure: There are none.
    """
    tasks: Sequence[str] | None = obs.get("task_descriptions")
    if tasks is None:
        raise _failure("task_descriptions", obs, "the model needs B sentences")
    return tasks


def _failure(key: str, obs: Observation, need: str) -> EnvironmentFailure:
    value = obs.get(key)
    got = f"{value.dtype} {list(value.shape)}" if isinstance(value, torch.Tensor) else "no such key"
    return EnvironmentFailure(
        f"actor.model: {need}; received {got} for '{key}' from an environment that shows {', '.join(sorted(obs))}. "
        "Change the key, or the environment's cameras or wrappers."
    )
