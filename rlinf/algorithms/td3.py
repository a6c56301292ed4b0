"""Twin delayed deep deterministic policy gradient (Fujimoto et al., 2018) with an ensemble of critics and chunks."""

from __future__ import annotations

import torch

from rlinf.algorithms.q_learning import aggregate_q, bellman_targets, metric_sums, squared_q_errors
from rlinf.algorithms.types import Metrics


class TD3:
    """The losses of TD3; all take and return sums over a micro-batch of ``N`` transitions.

    The delay of the policy and of the targets are the learner's ``critic_actor_ratio`` and ``target_update_freq``.

    Args:
        gamma: Discount per action.
        agg_q: How the ``Q`` target values become one: ``min`` or ``mean``.
        actor_agg_q: The same for the values that the policy climbs; also ``q1``.
        target_noise: Standard deviation of the noise on the target policy's actions, which lie in (-1, 1).
        target_noise_clip: Bound of that noise.
    """

    temperature = None

    def __init__(
        self, *, gamma: float, agg_q: str, actor_agg_q: str, target_noise: float, target_noise_clip: float
    ) -> None:
        self.gamma = gamma
        self.agg_q, self.actor_agg_q = agg_q, actor_agg_q
        self.target_noise, self.target_noise_clip = target_noise, target_noise_clip

    def next_noise(self, noise: torch.Tensor) -> torch.Tensor:
        """Return ``clip(sigma * noise, -c, c)``, which smooths the targets (equation 14).

        Args:
            noise: Standard normal, any shape.
        """
        return (self.target_noise * noise).clamp(-self.target_noise_clip, self.target_noise_clip)

    def critic_loss(
        self,
        *,
        q: torch.Tensor,
        next_q: torch.Tensor,
        next_logprobs: torch.Tensor | None,
        rewards: torch.Tensor,
        terminated: torch.Tensor,
        lengths: torch.Tensor,
    ) -> tuple[torch.Tensor, Metrics]:
        """Return the squared error of all critics against ``r + gamma^k (1 - terminated) Q'``.

        Args:
            q: float [N, Q], with gradients.
            next_q: float [N, Q], of the target critics for the smoothed actions of the target policy.
            next_logprobs: Not used: the policy is deterministic.
            rewards: float [N]; of whole chunks, discounted within.
            terminated: bool [N].
            lengths: int [N]; executed actions (``k``).

        Returns:
            The loss, summed over transitions and averaged over critics, and metrics as (sum, count) pairs.
        """
        del next_logprobs
        value = aggregate_q(next_q, self.agg_q)
        targets = bellman_targets(value, rewards=rewards, terminated=terminated, lengths=lengths, gamma=self.gamma)
        return squared_q_errors(q, targets)

    def actor_loss(self, *, q: torch.Tensor, logprobs: torch.Tensor | None) -> tuple[torch.Tensor, Metrics]:
        """Return ``-Q`` of the present policy's actions, summed over transitions.

        Args:
            q: float [N, Q], with gradients through the actions.
            logprobs: Not used.

        Returns:
            The loss, and metrics as (sum, count) pairs.
        """
        del logprobs
        losses = -aggregate_q(q, self.actor_agg_q)
        return losses.sum(), metric_sums(actor_loss=losses)
