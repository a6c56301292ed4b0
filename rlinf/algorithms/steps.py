"""Steps in time: what advantage estimators work on, and how trajectories and responses become steps and come back.

What a step of a trajectory is depends on ``reward_type``:

- ``chunk_level``: a chunk is one step. Its reward is the plain sum over its executed actions and ``gamma`` discounts
  from chunk to chunk; within a chunk nothing is discounted.
- ``action_level``: every action is a step of its own, with its own value and its own discount.

A step of a response is a token. A response is an episode, whose score is the reward of the model's last token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.utils.rnn import pad_sequence

from rlinf.algorithms.kl import estimate_kl
from rlinf.algorithms.types import AllReduce, Columns, Ragged, at_least_float32
from rlinf.config.schema.algorithm import KLInRewardConfig
from rlinf.data.messages.embodied import Trajectory
from rlinf.errors import AlgorithmError


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps(Columns):
    """The steps of a rollout, padded: a column of S steps for each of B trajectories (or responses).

    S is T (``chunk_level``), T * C (``action_level``), or the tokens of the longest response.

    Attributes:
        rewards: float [S, B]; 0 where the step is invalid.
        loss_mask: bool [S, B]; valid steps: at least one action of the step was executed, or the token is the model's.
        dones: bool [S, B]; an episode ended at this step, by termination or truncation.
        group_ids: int64 [B]; equal within a group, whose trajectories are all on this rank.
        values: float [S + 1, B]; of the state before each step, and after the last. None without a value head.
        bootstrap_values: float [S, B]; at a done, the value of what would have followed it: the value of the state in
            which the episode was cut off, 0 where it ended for good. None is 0 throughout.
        kl: float [S, B]; KL(old || reference) at each step. None without a reference.
        kl_beta: What ``compute_advantages_and_returns`` subtracts from rewards is this times ``kl``.
        all_reduce: Sum over data-parallel ranks, which hold other trajectories; None where all are here.
    """

    rewards: torch.Tensor
    loss_mask: torch.Tensor
    dones: torch.Tensor | None = None
    group_ids: torch.Tensor | None = None
    values: torch.Tensor | None = None
    bootstrap_values: torch.Tensor | None = None
    kl: torch.Tensor | None = None
    kl_beta: float = 0.0
    all_reduce: AllReduce | None = None


def trajectory_to_steps(
    trajectory: Trajectory, *, reward_type: str, bootstrap_type: str, all_reduce: AllReduce | None = None
) -> Steps:
    """Lay a trajectory out as steps in time.

    Args:
        trajectory: Time-major rollout: all that this rank learns from in this step (several rollout epochs joined along
            B, with distinct group ids).
        reward_type: ``chunk_level`` or ``action_level``.
        bootstrap_type: ``standard`` continues truncated episodes with the value of their last state; ``always`` also
            terminated ones. An episode that was truncated and terminated at once has terminated.
        all_reduce: See ``Steps``.

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
        all_reduce=all_reduce,
    )


def responses_to_steps(
    *,
    scores: torch.Tensor,
    loss_masks: Ragged,
    group_ids: torch.Tensor,
    rewards: Ragged | None = None,
    values: Ragged | None = None,
    old_logprobs: Ragged | None = None,
    ref_logprobs: Ragged | None = None,
    kl_in_reward: KLInRewardConfig | None = None,
    all_reduce: AllReduce | None = None,
) -> Steps:
    """Lay responses out as steps in time.

    Args:
        scores: float [N]; the reward of each response, at its last own token.
        loss_masks: bool [L] each; the model's own tokens.
        group_ids: int64 [N]; equal for responses to one prompt.
        rewards: float [L] each; further rewards, such as those of turns, at the tokens that they are for. None adds
            none.
        values: float [L] each; value of the state before each token. None without a value head.
        old_logprobs: float [L] each, of the policy that acted; needed with ``kl_in_reward``.
        ref_logprobs: float [L] each, of the reference policy; needed with ``kl_in_reward``.
        kl_in_reward: Weight and estimator of the KL from the reference that is subtracted from the reward of each token
            (Ziegler et al., arXiv 1909.08593, Eq. 2); ``k1`` makes the expected penalty the KL itself. None subtracts
            nothing.
        all_reduce: See ``Steps``.

    Raises:
        AlgorithmError: Tensors that do not fit, or a KL without log-probabilities.
    """
    lengths = [len(mask) for mask in loss_masks]
    _check(
        lengths, scores=scores, group_ids=group_ids, rewards=rewards, values=values, old=old_logprobs, ref=ref_logprobs
    )
    mask = pad_sequence(list(loss_masks))
    is_last = mask & (mask.flip(0).cumsum(0).flip(0) == 1)
    at_end = torch.where(
        is_last, at_least_float32(scores).expand_as(mask), torch.zeros_like(scores[:1]).expand_as(mask)
    )
    kl = None
    if old_logprobs is not None and ref_logprobs is not None:
        kind = "k1" if kl_in_reward is None else kl_in_reward.penalty
        kl = estimate_kl(pad_sequence(list(old_logprobs)), pad_sequence(list(ref_logprobs)), kind)
    elif kl_in_reward is not None:
        raise AlgorithmError("responses_to_steps: kl_in_reward needs 'old_logprobs' and 'ref_logprobs'.")
    return Steps(
        rewards=at_end if rewards is None else at_end + pad_sequence(list(rewards)),
        dones=is_last,
        loss_mask=mask,
        group_ids=group_ids,
        values=None if values is None else _with_end(values),
        kl=kl,
        kl_beta=0.0 if kl_in_reward is None else kl_in_reward.beta,
        all_reduce=all_reduce,
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


def samples_to_steps(samples: torch.Tensor, num_chunk_steps: int) -> torch.Tensor:
    """Bring samples back into time: the inverse of ``steps_to_samples``.

    Args:
        samples: [N = B * T, K], with K numbers per sample.
        num_chunk_steps: ``T``; must divide N.

    Returns:
        [S = T * K, B].

    Raises:
        AlgorithmError: N is no multiple of T.
    """
    if len(samples) % num_chunk_steps:
        raise AlgorithmError(f"{len(samples)} samples do not divide into {num_chunk_steps} chunk steps.")
    return samples.view(-1, num_chunk_steps, samples.shape[1]).permute(1, 2, 0).flatten(0, 1)


def steps_to_ragged(steps: torch.Tensor, lengths: Sequence[int]) -> tuple[torch.Tensor, ...]:
    """Return the steps [S, B] of each column without its padding: a tensor [L] each."""
    return tuple(steps[:length, number].clone() for number, length in enumerate(lengths))


def _with_end(values: Ragged) -> torch.Tensor:
    """[L] each to [S + 1, N]: what follows a response's last token has value 0."""
    padded = at_least_float32(pad_sequence(list(values)))
    return torch.cat((padded, torch.zeros_like(padded[:1])))


def _check(lengths: list[int], *, scores: torch.Tensor, group_ids: torch.Tensor, **ragged: Ragged | None) -> None:
    problems = [
        f"{name} [{len(t)}]" for name, t in (("scores", scores), ("group_ids", group_ids)) if len(t) != len(lengths)
    ]
    for name, tensors in ragged.items():
        if tensors is not None and [len(tensor) for tensor in tensors] != lengths:
            problems.append(f"{name} with lengths {[len(tensor) for tensor in tensors]}")
    if problems or not lengths:
        raise AlgorithmError(f"responses_to_steps: loss_masks have lengths {lengths}, received {', '.join(problems)}.")


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
            f"final_values must be [T, B, V] = {[num_chunk_steps, num_envs, expected]} as values are, "
            f"received {None if final_values is None else list(final_values.shape)}."
        )
    values, final_values = at_least_float32(values), at_least_float32(final_values)
    if reward_type == "chunk_level":
        return values.squeeze(-1), final_values.squeeze(-1)
    # A chunk's values are those of the states before each of its actions; of a state in which nothing was executed
    # only the first is known.
    in_time = torch.cat((_actions_in_time(values[:-1]), values[-1:, :, 0]))
    return in_time, final_values[..., 0].repeat_interleave(num_actions, dim=0)
