"""The actor objective of RLT: what the critics promise, held near what a frozen model proposes."""

from __future__ import annotations

import torch

from rlinf.algorithms.q_learning import metric_sums
from rlinf.algorithms.td3 import TD3
from rlinf.algorithms.types import Metrics
from rlinf.config.schema.algorithm import RLTLossConfig


class RLT(TD3):
    """TD3 whose policy pays for its distance from a proposal; all return sums over a micro-batch of ``N`` transitions.

    Args:
        cfg: Keys of the loss.
        action_size: Not used.
        device: Not used.
        make_optimizer: Not used.
    """

    cfg: RLTLossConfig

    def __init__(
        self, cfg: RLTLossConfig, *, action_size: int, device: torch.device, make_optimizer: object = None
    ) -> None:
        super().__init__(cfg, action_size=action_size, device=device, make_optimizer=make_optimizer)

    def actor_loss(
        self, *, q: torch.Tensor, logprobs: torch.Tensor | None, distance: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, Metrics]:
        """Return ``bc_weight * distance - q_weight * Q``, summed over transitions.

        Args:
            q: float [N, Q], with gradients through the actions.
            logprobs: Not used.
            distance: float [N]; mean squared distance of the actions from the proposal, with gradients.

        Returns:
            The loss, and metrics as (sum, count) pairs.
        """
        assert distance is not None
        climb, metrics = super().actor_loss(q=q, logprobs=logprobs)
        loss = self.cfg.q_weight * climb + self.cfg.bc_weight * distance.sum()
        return loss, metrics | metric_sums(proposal_distance=distance)
