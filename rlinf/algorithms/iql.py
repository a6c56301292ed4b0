"""Implicit Q-learning (Kostrikov et al., 2021, "Offline reinforcement learning with implicit Q-learning")."""

from __future__ import annotations

import torch

from rlinf.algorithms.q_learning import bellman_targets, metric_sums, squared_q_errors
from rlinf.algorithms.types import Metrics
from rlinf.config.schema.algorithm import IQLLossConfig


class IQL:
    """The losses of implicit Q-learning; both return sums over a micro-batch of ``N`` transitions.

    Values are an expectile of the critics' values over the actions in the data, so that no action outside of it is ever
    valued. Unlike the authors' code, critics and values take their steps together, from the same values.

    Args:
        cfg: Keys of the loss; ``temperature`` is the inverse one of the policy's weights.
    """

    def __init__(self, cfg: IQLLossConfig) -> None:
        self.cfg = cfg

    def critic_loss(
        self,
        *,
        q: torch.Tensor,
        target_q: torch.Tensor,
        values: torch.Tensor,
        next_values: torch.Tensor,
        rewards: torch.Tensor,
        terminated: torch.Tensor,
        lengths: torch.Tensor,
    ) -> tuple[torch.Tensor, Metrics]:
        """Return the squared error of all critics (equation 6) and the expectile loss of the values (equation 5).

        Args:
            q: float [N, Q], with gradients.
            target_q: float [N, Q]; the target critics' values of the same actions.
            values: float [N], with gradients.
            next_values: float [N]; of the states that follow.
            rewards: float [N]; of whole chunks, discounted within.
            terminated: bool [N]; nothing follows.
            lengths: int [N]; executed actions (``k``): what follows is discounted by gamma^k.

        Returns:
            The losses' sum over transitions (that of the critics averaged over them), and metrics.
        """
        targets = bellman_targets(
            next_values, rewards=rewards, terminated=terminated, lengths=lengths, gamma=self.cfg.gamma
        )
        critic_loss, metrics = squared_q_errors(q, targets)
        gap = target_q.detach().amin(-1) - values
        value_losses = expectile_loss(gap, self.cfg.expectile)
        metrics |= metric_sums(value_loss=value_losses, value=values, advantage=gap)
        return critic_loss + value_losses.sum(), metrics

    def actor_loss(
        self, *, logprobs: torch.Tensor, target_q: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, Metrics]:
        """Return ``-exp(temperature * (Q - V)) log pi`` (equation 7), weights bounded, summed over transitions.

        Args:
            logprobs: float [N]; of the executed actions, with gradients.
            target_q: float [N, Q].
            values: float [N].
        """
        advantages = (target_q.amin(-1) - values).detach()
        weights = (self.cfg.temperature * advantages).exp().clamp(max=self.cfg.max_advantage_weight)
        losses = -weights * logprobs
        return losses.sum(), metric_sums(actor_loss=losses, advantage_weight=weights, logprob=logprobs)


def expectile_loss(gap: torch.Tensor, expectile: float) -> torch.Tensor:
    """Return ``|expectile - 1(gap < 0)| gap^2``, of the shape of ``gap``."""
    return torch.where(gap < 0, 1.0 - expectile, expectile) * gap.square()
