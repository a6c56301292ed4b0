"""What all off-policy losses share: targets of critics, errors against them, and one value from an ensemble."""

from __future__ import annotations

import torch

from rlinf.algorithms.types import Metrics


def aggregate_q(q: torch.Tensor, how: str) -> torch.Tensor:
    """Return one value for each transition from those of an ensemble.

    Args:
        q: float [N, Q].
        how: ``min``, ``mean`` or ``q1`` (the first).

    Returns:
        float [N].
    """
    if how == "q1":
        return q[:, 0]
    return q.amin(-1) if how == "min" else q.mean(-1)


@torch.no_grad()
def bellman_targets(
    next_values: torch.Tensor,
    *,
    rewards: torch.Tensor,
    terminated: torch.Tensor,
    lengths: torch.Tensor,
    gamma: float,
) -> torch.Tensor:
    """Return ``r + gamma^k (1 - terminated) V'``, float [N].

    Args:
        next_values: float [N]; of the states after the chunks.
        rewards: float [N]; of whole chunks, discounted within.
        terminated: bool [N]; a truncated episode is not terminated, and its last state is bootstrapped from.
        lengths: int [N]; executed actions (``k``).
        gamma: Discount per action.
    """
    # Multiplying by 0 would keep what is not finite in a state that does not count.
    return rewards + torch.where(terminated, 0.0, gamma ** lengths.to(next_values) * next_values)


def squared_q_errors(q: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, Metrics]:
    """Return the critics' squared errors, summed over transitions and averaged over critics, and their metrics.

    Args:
        q: float [N, Q], with gradients.
        targets: float [N].
    """
    errors = (q - targets.unsqueeze(-1)).square().mean(-1)
    return errors.sum(), metric_sums(critic_loss=errors, q_value=q.detach().mean(-1), q_target=targets)


def metric_sums(**values: torch.Tensor) -> Metrics:
    """Return (sum, count) pairs of what has one value for each transition, float [N] each."""
    sums = torch.stack([value.detach() for value in values.values()]).sum(-1)
    counts = torch.full_like(sums, float(len(next(iter(values.values())))))
    return dict(zip(values, torch.stack((sums, counts), 1).unbind(), strict=True))
