"""Log-probabilities, entropies, masks and advantages of action chunks at token, action or chunk level.

A token is one dimension of one action. At every level the first axis is the sample, and no level is one-dimensional,
so that nothing can broadcast [N] against [N, 1]: ``chunk_level`` is [N, 1], ``action_level`` [N, C] and
``token_level`` [N, C, A].
"""

from __future__ import annotations

import torch

from rlinf.algorithms.types import at_least_float32
from rlinf.errors import AlgorithmError

LEVELS = ("token_level", "action_level", "chunk_level")


def reduce_to_level(per_token: torch.Tensor, executed: torch.Tensor, level: str) -> torch.Tensor:
    """Sum log-probabilities or entropies of tokens up to a level: those of independent factors add.

    Args:
        per_token: Float [N, C, A].
        executed: bool [N, C]; only executed actions count, others become 0.
        level: One of the three levels.

    Returns:
        float32 (or float64) [N, C, A], [N, C] or [N, 1].

    Raises:
        AlgorithmError: An unknown level, or shapes that do not fit.
    """
    _check(per_token.shape[:2] == executed.shape and per_token.ndim == 3, "reduce_to_level", per_token, executed)
    per_token = at_least_float32(per_token)
    kept = torch.where(executed.unsqueeze(-1), per_token, torch.zeros_like(per_token))
    if level == "token_level":
        return kept
    if level == "action_level":
        return kept.sum(dim=-1)
    if level == "chunk_level":
        return kept.sum(dim=(1, 2)).unsqueeze(-1)
    raise _unknown_level(level)


def mask_at_level(executed: torch.Tensor, level: str, *, action_dim: int) -> torch.Tensor:
    """Return which entries of a level count: those with at least one executed action.

    Args:
        executed: bool [N, C].
        level: One of the three levels.
        action_dim: ``A``.

    Returns:
        bool [N, C, A], [N, C] or [N, 1].

    Raises:
        AlgorithmError: An unknown level.
    """
    if level == "token_level":
        return executed.unsqueeze(-1).expand(-1, -1, action_dim)
    if level == "action_level":
        return executed
    if level == "chunk_level":
        return executed.any(dim=-1, keepdim=True)
    raise _unknown_level(level)


def expand_to_level(per_step: torch.Tensor, level: str, *, num_actions: int, action_dim: int) -> torch.Tensor:
    """Give each entry of a level the advantage of the step it belongs to.

    Args:
        per_step: [N, K]: K = 1 (chunk-level rewards) or C (action-level rewards).
        level: The level of the log-probabilities; must not be coarser than that of the rewards.
        num_actions: ``C``.
        action_dim: ``A``.

    Returns:
        [N, C, A], [N, C] or [N, 1].

    Raises:
        AlgorithmError: Rewards finer than log-probabilities, an unknown level, or a shape that does not fit.
    """
    _check(per_step.ndim == 2 and per_step.shape[1] in {1, num_actions}, "expand_to_level", per_step)
    if level == "chunk_level":
        if per_step.shape[1] != 1:
            raise AlgorithmError(
                f"Advantages [N, {num_actions}] (reward_type action_level) cannot weight one ratio per chunk "
                "(logprob_type chunk_level); set logprob_type to action_level or token_level."
            )
        return per_step
    if level == "action_level":
        return per_step.expand(-1, num_actions)
    if level == "token_level":
        return per_step.expand(-1, num_actions).unsqueeze(-1).expand(-1, -1, action_dim)
    raise _unknown_level(level)


def _unknown_level(level: str) -> AlgorithmError:
    return AlgorithmError(f"Unknown level '{level}'; choose {', '.join(LEVELS)}.")


def _check(fits: bool, function: str, *tensors: torch.Tensor) -> None:
    if not fits:
        raise AlgorithmError(f"{function}: shapes {[list(tensor.shape) for tensor in tensors]} do not fit together.")
