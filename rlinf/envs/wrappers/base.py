"""What a wrapper of environments is."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium
import torch

from rlinf.config.schema.env import EnvConfig
from rlinf.data.messages.embodied import ChunkStep, Observation


class EnvWrapper:
    """Changes observations and actions of ``B`` environments; the rules of ``VectorEnv`` hold for what comes out.

    A wrapper that remembers something from one chunk to the next names it in ``state_names``, so that a resumed run
    goes on with it.

    Args:
        cfg: The entry of ``wrappers``.
        env: The environment's configuration.
        num_envs: ``B``.
    """

    state_names: ClassVar[tuple[str, ...]] = ()
    """Attributes that hold its state: numbers, strings, tensors, None, and lists and mappings of these."""
    looks_at_every_action: ClassVar[bool] = False
    """Whether all wrappers get the actions of a chunk one by one, each as a chunk of its own."""
    flags: torch.Tensor | None = None
    """Then, bool [B, 1]; whether an operator has chosen the action that is executed. None: no operator is there."""
    is_within_chunk: bool = False
    """Then, whether the action that is executed is one before the last of the policy's chunk."""
    resting: torch.Tensor | None = None
    """Then, bool [B]: environments whose episode has ended within the chunk, and that execute no more of it."""

    def __init__(self, cfg: Any, *, env: EnvConfig, num_envs: int) -> None:
        self.cfg = cfg
        self.env = env
        self.num_envs = num_envs

    def space(self, space: gymnasium.spaces.Dict) -> gymnasium.spaces.Dict:
        """Return the space of one row of what is shown, given that of what the environment shows."""
        return space

    def begin_step(self, step: int) -> None:
        """A training step begins; counted from 1."""

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

    def step_result(self, step: ChunkStep) -> ChunkStep:
        """Return what is reported of a chunk, given what the environment reports."""
        return step

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the attributes in ``state_names``."""
        return {name: copy.deepcopy(getattr(self, name)) for name in self.state_names}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` returned for as many environments."""
        for name in self.state_names:
            setattr(self, name, copy.deepcopy(state[name]))

    def close(self) -> None:
        """Free what the wrapper holds; called once."""
