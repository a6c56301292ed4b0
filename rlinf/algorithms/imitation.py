"""Imitation of actions: behaviour cloning (Pomerleau, 1991), and the supervised part of DAgger (Ross et al., 2011)."""

from __future__ import annotations

import torch

from rlinf.algorithms.types import Metrics


def imitation_loss(
    kind: str,
    *,
    logprobs: torch.Tensor,
    greedy: torch.Tensor | None,
    actions: torch.Tensor,
    executed: torch.Tensor,
    denominator: int,
) -> tuple[torch.Tensor, Metrics]:
    """Return the mean loss of the actions that count; chunks are short at the end of an episode.

    Args:
        kind: ``nll``: minus the log-probability, summed over the action's dimensions; ``mse``: the squared distance of
            the greedy action, averaged over them.
        logprobs: float [N, C, A], with gradients.
        greedy: float [N, C, A], with gradients; needed by ``mse``.
        actions: float [N, C, A].
        executed: bool [N, C].
        denominator: Actions that count in the whole update batch, of all ranks and micro-batches.

    Returns:
        The micro-batch's share of the loss, and metrics as (sum, count) pairs.
    """
    if kind == "mse":
        assert greedy is not None
        # The standard deviation gets a gradient of 0: optimizers keep, and checkpoints expect, a state of it.
        losses = (greedy - actions).square().mean(-1) + 0.0 * logprobs.sum(-1)
    else:
        losses = -logprobs.sum(-1)
    total = torch.where(executed, losses, 0.0).sum()
    return total / denominator, {"imitation_loss": torch.stack([total.detach(), executed.sum().to(total)])}
