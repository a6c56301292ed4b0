"""Begins episodes in single rows of a ManiSkill batch, each from its own seed; imports no ManiSkill.

ManiSkill seeds PyTorch's generator, of which most tasks sample, by row 0's seed whichever rows begin, and a reset of
some rows also touches the controllers and generators of the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from rlinf.envs.raw_chunk import IntArray
from rlinf.envs.simulators.maniskill.maniskill_looks import untouched

_TARGETS = ("_start_qpos", "_target_qpos", "_target_qvel", "_target_pose")
"""What ManiSkill's controllers keep between actions, [B, ...] each."""


class RowResets:
    """Resets of some rows of one simulation, after which the others go on as if there had been none.

    Args:
        env: ManiSkill's environment; its ``_initialize_episode`` is replaced.
    """

    def __init__(self, env: Any) -> None:
        self._env = env
        self._initialize = env._initialize_episode
        self._seeds = np.zeros(env.num_envs, np.int64)
        env._initialize_episode = self._initialize_rows

    def reset(self, rows: IntArray, seeds: IntArray) -> Any:
        """Begin episodes.

        Args:
            rows: int64 [F], ascending.
            seeds: int64 [F]; a row's start state depends on its own alone.

        Returns:
            ManiSkill's observation of all rows.
        """
        env = self._env
        self._seeds[rows] = seeds
        others = np.setdiff1d(np.arange(env.num_envs), rows)
        generators = env._batched_episode_rng
        targets = _targets(env, others)
        options = {"env_idx": torch.as_tensor(rows, device=env.device)}
        with untouched(env, rows):
            raw, _ = env.reset(seed=self._seeds.tolist(), options=options)
        if len(others):
            env._batched_episode_rng[others] = [generators.rngs[row] for row in others]
            for tensor, kept in zip(_target_tensors(env), targets, strict=True):
                tensor[others] = kept
        return raw

    def _initialize_rows(self, env_idx: torch.Tensor, options: dict[str, Any]) -> None:
        """Initialize episodes one by one; where a task reads seeds alone, all at once."""
        env = self._env
        if getattr(env, "starts_follow_from_seeds", False):
            self._initialize(env_idx, options)
            return
        mask = env.scene._reset_mask
        for number, row in enumerate(env_idx.tolist()):
            env.scene._reset_mask = torch.zeros_like(mask)
            env.scene._reset_mask[row] = True
            env._episode_rng = env._batched_episode_rng[row]
            torch.manual_seed(int(env._episode_seed[row]))  # the caller puts the generator's state back
            self._initialize(env_idx[number : number + 1], options)
        env.scene._reset_mask = mask


def _targets(env: Any, rows: IntArray) -> list[torch.Tensor]:
    """Return copies of what the controllers keep for some rows."""
    return [tensor[rows].clone() for tensor in _target_tensors(env)] if len(rows) else []


def _target_tensors(env: Any) -> Iterator[torch.Tensor]:
    """Yield what the controllers keep, always in the same order."""
    for controller in _controllers(None if env.agent is None else env.agent.controller):
        for name in _TARGETS:
            value = getattr(controller, name, None)
            if value is not None:
                yield value if isinstance(value, torch.Tensor) else value.raw_pose


def _controllers(controller: Any) -> Iterator[Any]:
    """Yield the controllers of joints: of several robots, and of a robot's arm and gripper."""
    parts = controller if isinstance(controller, dict) else getattr(controller, "controllers", None)
    if parts is None:
        yield controller
        return
    for part in parts.values():
        yield from _controllers(part)
