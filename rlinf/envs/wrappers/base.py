"""What a wrapper of environments is."""

from __future__ import annotations

from typing import Any

import gymnasium
import torch

from rlinf.config.schema.env import EnvConfig
from rlinf.data.embodied import ChunkStep, Observation


class EnvWrapper:
    """Changes what ``B`` environments show and are told; the rules of ``VectorEnv`` hold for what comes out.

    Args:
        cfg: The entry of ``wrappers``.
        env: The environment's configuration.
        num_envs: ``B``.
    """

    def __init__(self, cfg: Any, *, env: EnvConfig, num_envs: int) -> None:
        self.cfg = cfg
        self.env = env
        self.num_envs = num_envs

    def space(self, space: gymnasium.spaces.Dict) -> gymnasium.spaces.Dict:
        """Return the space of one row of what is shown, given that of what the environment shows."""
        return space

    def actions(self, actions: torch.Tensor) -> torch.Tensor:
        """Return the chunk that the environment executes, given the policy's [B, C, A] or [B, C]."""
        return actions

    def reset(self, obs: Observation, rows: torch.Tensor) -> Observation:
        """Return what is shown of episodes that begin.

        Args:
            obs: What the environment shows, ``F`` rows.
            rows: int64 [F]; which of the ``B`` environments they are.
        """
        return obs

    def outcome(self, step: ChunkStep) -> ChunkStep:
        """Return what is reported of a chunk, given what the environment reports."""
        return step

    def close(self) -> None:
        """Free what the wrapper holds; called once."""
