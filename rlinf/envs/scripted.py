"""Policies that are programs: experts that simulators bring along, to collect demonstrations with."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np
import torch

from rlinf.config.registries import scripted_policies
from rlinf.config.schema.env import EnvConfig
from rlinf.data.messages.embodied import Observation
from rlinf.envs.action_conventions import convention_of

ScriptedPolicy = Callable[[Observation], torch.Tensor]
"""Turns ``B`` observations into actions float32 [B, 1, A]. A registered one says what the simulator takes."""
_RISES_METERS = 0.04
"""Way up from which on a hand rises before it goes to the side."""


def make_scripted_policy(name: str, env: EnvConfig) -> ScriptedPolicy:
    """Build the scripted policy registered under ``name`` for an environment, in whose convention it acts.

    Raises:
        RegistryError: There is none; the message lists the names and the closest one.
    """
    policy: ScriptedPolicy = scripted_policies.get(name)(env)
    convention = convention_of(env)
    if convention.is_native:
        return policy
    return lambda obs: torch.from_numpy(convention.to_policy(policy(obs).numpy()))


def draw(obs: Observation, *place: int) -> float:
    """Return a random number in [0, 1) that depends on what is seen and on ``place`` alone.

    So neither a restart nor another number of workers changes what is decided by it.

    Args:
        obs: One row.
        place: Non-negative numbers: a seed, a step.
    """
    checksum = 0
    for key in sorted(obs):
        if isinstance(obs[key], torch.Tensor):
            checksum = zlib.crc32(obs[key].cpu().contiguous().numpy().tobytes(), checksum)
    return float(np.random.default_rng([*place, checksum]).random())


def upwards_first(way: torch.Tensor) -> torch.Tensor:
    """Return a way [B, 3] in meters without its sidewise part where it has to rise by more than 4 cm."""
    result = way.clone()
    result[:, :2] *= (way[:, 2] < _RISES_METERS).float().unsqueeze(-1)
    return result
