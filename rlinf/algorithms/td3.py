"""Twin delayed deep deterministic policy gradient (Fujimoto et al., 2018) with an ensemble of critics and chunks."""

from __future__ import annotations

import torch

from rlinf.algorithms.q_learning import aggregate_q, bellman_targets, metric_sums, squared_q_errors
from rlinf.algorithms.types import Metrics
from rlinf.config.schema.algorithm import TD3LossConfig


class TD3:
    """The losses of TD3; all take and return sums over a micro-batch of ``N`` transitions.

    The delay of the policy and of the targets are the learner's ``critic_actor_ratio`` and ``target_update_freq``.

    Args:
        cfg: Keys of the loss.
        action_size: Not used.
        device: Not used.
        make_optimizer: Not used.
    """

    temperature = None

    def __init__(
        self, cfg: TD3LossConfig, *, action_size: int, device: torch.device, make_optimizer: object = None
    ) -> None:
        del action_size, device, make_optimizer
        self.cfg = cfg

    def next_noise(self, noise: torch.Tensor) -> torch.Tensor:
        """Return ``clip(sigma * noise, -c, c)``, which smooths the targets (equation 14).

        Args:
            noise: Standard normal, any shape.
        """
        return (self.cfg.target_noise * noise).clamp(-self.cfg.target_noise_clip, self.cfg.target_noise_clip)

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
        value = aggregate_q(next_q, self.cfg.agg_q)
        targets = bellman_targets(value, rewards=rewards, terminated=terminated, lengths=lengths, gamma=self.cfg.gamma)
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
        losses = -aggregate_q(q, self.cfg.actor_agg_q)
        return losses.sum(), metric_sums(actor_loss=losses)
