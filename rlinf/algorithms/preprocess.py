"""From a trajectory of action chunks to steps in time, and from steps back to training samples.

What a step is depends on ``reward_type``:

- ``chunk_level``: a chunk is one step. Its reward is the plain sum over its executed actions and ``gamma`` discounts
  from chunk to chunk; within a chunk nothing is discounted.
- ``action_level``: every action is a step of its own, with its own value and its own discount.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rlinf.algorithms.types import at_least_float32
from rlinf.data.embodied import Trajectory
from rlinf.errors import AlgorithmError


@dataclass(frozen=True, slots=True)
class Steps:
    """A trajectory as steps in time; ``S`` is T (chunk_level) or T * C (action_level).

    Attributes:
        rewards: float [S, B]; 0 where the step is invalid.
        dones: bool [S, B]; an episode ended at this step, by termination or truncation.
        loss_mask: bool [S, B]; at least one action of the step was executed.
        group_ids: int64 [B].
        values: float [S + 1, B]; None without a value head.
        bootstrap_values: float [S, B]; at a done, the value of what would have followed it: the value of the state in
            which the episode was cut off, 0 where it ended for good. None without a value head.
    """

    rewards: torch.Tensor
    dones: torch.Tensor
    loss_mask: torch.Tensor
    group_ids: torch.Tensor
    values: torch.Tensor | None
    bootstrap_values: torch.Tensor | None


def trajectory_to_steps(trajectory: Trajectory, *, reward_type: str, bootstrap_type: str) -> Steps:
    """Lay a trajectory out as steps in time.

    Args:
        trajectory: Time-major rollout.
        reward_type: ``chunk_level`` or ``action_level``.
        bootstrap_type: ``standard`` continues truncated episodes with the value of their last state; ``always`` also
            terminated ones. An episode that was truncated and terminated at once has terminated.

    Returns:
        The steps.

    Raises:
        AlgorithmError: An unknown ``reward_type`` or ``bootstrap_type``, or values that do not fit the reward type.
    """
    if reward_type not in {"chunk_level", "action_level"}:
        raise AlgorithmError(f"reward_type must be chunk_level or action_level, received '{reward_type}'.")
    if bootstrap_type not in {"standard", "always"}:
        raise AlgorithmError(f"bootstrap_type must be standard or always, received '{bootstrap_type}'.")
    executed = trajectory.executed
    rewards = at_least_float32(trajectory.rewards)
    rewards = torch.where(executed, rewards, torch.zeros_like(rewards))
    terminated = trajectory.terminations & executed
    truncated = trajectory.truncations & executed
    if reward_type == "chunk_level":
        rewards, executed = rewards.sum(-1), executed.any(-1)
        terminated, truncated = terminated.any(-1), truncated.any(-1)
    else:
        rewards, executed = _actions_in_time(rewards), _actions_in_time(executed)
        terminated, truncated = _actions_in_time(terminated), _actions_in_time(truncated)
    bootstrapped = terminated | truncated if bootstrap_type == "always" else truncated & ~terminated
    values, bootstrap_values = None, None
    if trajectory.values is not None:
        values, final_values = _values_in_time(trajectory, reward_type)
        bootstrap_values = torch.where(bootstrapped, final_values, torch.zeros_like(final_values))
    return Steps(
        rewards=rewards,
        dones=terminated | truncated,
        loss_mask=executed,
        group_ids=trajectory.group_ids,
        values=values,
        bootstrap_values=bootstrap_values,
    )


def rows_to_samples(rows: torch.Tensor) -> torch.Tensor:
    """Flatten [T, B, ...] to samples [N = B * T, ...], trajectory by trajectory: sample ``b * T + t`` is row (t, b).

    The order keeps a trajectory's samples together, so that cutting the batch between ranks by trajectories cuts the
    sample numbers into contiguous ranges.
    """
    return rows.transpose(0, 1).flatten(0, 1)


def steps_to_samples(steps: torch.Tensor, num_chunk_steps: int) -> torch.Tensor:
    """Bring steps [S, B] into the samples' order.

    Args:
        steps: One number per step.
        num_chunk_steps: ``T``; must divide S.

    Returns:
        [N = B * T, K], with K = S / T numbers per sample.

    Raises:
        AlgorithmError: S is no multiple of T.
    """
    num_steps, num_envs = steps.shape
    if num_steps % num_chunk_steps:
        raise AlgorithmError(f"{num_steps} steps do not divide into {num_chunk_steps} chunk steps.")
    return rows_to_samples(steps.view(num_chunk_steps, -1, num_envs).transpose(1, 2))


def _actions_in_time(chunks: torch.Tensor) -> torch.Tensor:
    """[T, B, C] to [T * C, B]."""
    return chunks.transpose(1, 2).flatten(0, 1)


def _values_in_time(trajectory: Trajectory, reward_type: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return values [S + 1, B] and the value of the state behind each step [S, B], whether used or not."""
    values, final_values = trajectory.values, trajectory.final_values
    num_chunk_steps, num_envs, num_actions = trajectory.rewards.shape
    expected = 1 if reward_type == "chunk_level" else num_actions
    if values is None or values.shape != (num_chunk_steps + 1, num_envs, expected):
        raise AlgorithmError(
            f"reward_type {reward_type} needs values [T + 1, B, V] = {[num_chunk_steps + 1, num_envs, expected]}, "
            f"received {None if values is None else list(values.shape)}. Let the model's value head follow reward_type."
        )
    if final_values is None or final_values.shape != (num_chunk_steps, num_envs, expected):
        raise AlgorithmError(
            f"final_values must be [T, B, V] = {[num_chunk_steps, num_envs, expected]} beside values, "
            f"received {None if final_values is None else list(final_values.shape)}."
        )
    values, final_values = at_least_float32(values), at_least_float32(final_values)
    if reward_type == "chunk_level":
        return values.squeeze(-1), final_values.squeeze(-1)
    # A chunk's values are those of the states before each of its actions; of a state in which nothing was executed
    # only the first is known.
    in_time = torch.cat((_actions_in_time(values[:-1]), values[-1:, :, 0]))
    return in_time, final_values[..., 0].repeat_interleave(num_actions, dim=0)
