"""What every policy loss takes and returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from rlinf.algorithms.aggregation import LossDenominators
from rlinf.algorithms.types import Columns, at_least_float32, require_same_shape


@dataclass(frozen=True, slots=True, kw_only=True)
class LossInputs(Columns):
    """The tensors of one micro-batch, and the counts of the update batch that it is a part of.

    An entry is what has a policy ratio of its own: a token of text, [N, L] or, packed, [T]; for chunks of actions one
    entry of ``logprob_type`` (see ``levels.py``), [N, 1], [N, C] or [N, C, A]. Tensors [N, ...] below have the shape of
    ``loss_mask``. Entries outside a mask may be anything, NaN included. A tensor that is not there is None; a loss
    that needs it raises ``AlgorithmError``.

    Attributes:
        loss_mask: bool [N, ...]; the entries that count.
        denominators: Counts over the whole update batch: all micro-batches of all ranks.
        sequence_ids: int64 [T]; the sequence of each packed entry. None for rows.
        sequence_weights: float [T]; see ``aggregate_loss``. None weighs all sequences alike.
        advantages: float [N, ...]. None for supervised losses.
        logprobs: float [N, ...] of the current policy, with gradient. None for losses of velocities.
        old_logprobs: float [N, ...] of the policy that acted. None as ``advantages`` and ``logprobs`` are.
        proximal_logprobs: float [N, ...] of the policy at the start of the update. None unless the loss config says
            ``needs_proximal_logprobs``.
        ref_logprobs: float [N, ...] of the reference policy. None without one.
        entropy: float, with gradient; of the shape of ``entropy_mask``. None where the model does not return it.
        entropy_mask: bool, at the level of ``entropy_type``. None takes ``loss_mask``.
        values: float [N, K] of the current model, with gradient; of text [N, L] or [T]. None without a value head.
        prev_values: Shape of ``values``; predicted during the rollout. None without a value head.
        returns: Shape of ``values``; what values are trained towards.
        value_mask: bool, shape of ``values``. None takes ``loss_mask``.
        velocity: float [N, C, A] of the current flow policy, with gradient. None for losses of log-probabilities, as
            the other three.
        old_velocity: float [N, C, A] of the flow policy that acted, at the same points.
        target: float [N, C, A]; from the noise to the executed actions.
        saturated: bool [N, C, A]; actions that were cut off at a bound.

    Raises:
        AlgorithmError: Tensors that must have the shape of ``loss_mask`` have another one.
    """

    loss_mask: torch.Tensor
    denominators: LossDenominators
    sequence_ids: torch.Tensor | None = None
    sequence_weights: torch.Tensor | None = None
    advantages: torch.Tensor | None = None
    logprobs: torch.Tensor | None = None
    old_logprobs: torch.Tensor | None = None
    proximal_logprobs: torch.Tensor | None = None
    ref_logprobs: torch.Tensor | None = None
    entropy: torch.Tensor | None = None
    entropy_mask: torch.Tensor | None = None
    values: torch.Tensor | None = None
    prev_values: torch.Tensor | None = None
    returns: torch.Tensor | None = None
    value_mask: torch.Tensor | None = None
    velocity: torch.Tensor | None = None
    old_velocity: torch.Tensor | None = None
    target: torch.Tensor | None = None
    saturated: torch.Tensor | None = None

    def __post_init__(self) -> None:
        """Refuse shapes that would broadcast against each other."""
        require_same_shape(
            "LossInputs",
            loss_mask=self.loss_mask,
            logprobs=self.logprobs,
            old_logprobs=self.old_logprobs,
            proximal_logprobs=self.proximal_logprobs,
            ref_logprobs=self.ref_logprobs,
            advantages=self.advantages,
            entropy=self.entropy if self.entropy_mask is None else None,
            velocity=self.velocity,
            old_velocity=self.old_velocity,
            target=self.target,
            saturated=self.saturated,
        )

    def masked(self, name: str) -> torch.Tensor:
        """Return a tensor [N, ...] by the name of its field, 0 outside ``loss_mask``."""
        (tensor,) = self.require(name)
        return torch.where(self.loss_mask, tensor, torch.zeros_like(tensor))

    def log_ratio(self) -> torch.Tensor:
        """Return log(current / old policy) [N, ...], with the current policy's gradient and 0 outside the mask."""
        logprobs, old_logprobs = self.require("logprobs", "old_logprobs")
        difference = at_least_float32(logprobs) - old_logprobs.detach()
        return torch.where(self.loss_mask, difference, torch.zeros_like(difference))


@dataclass(frozen=True, slots=True)
class LossOutput:
    """What a policy loss computes for each entry; ``policy_loss`` aggregates it and adds the terms of the config.

    Attributes:
        per_entry: float [N, ...], with gradient: the policy's loss; entries outside the mask may be anything.
        metrics: float [N, ...] by name; the mean over the mask is reported.
        name: Metric of the aggregated ``per_entry``.
    """

    per_entry: torch.Tensor
    metrics: Mapping[str, torch.Tensor] = field(default_factory=dict)
    name: str = "actor_loss"
