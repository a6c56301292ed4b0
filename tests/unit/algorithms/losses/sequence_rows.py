"""Rows of two sequences, and the losses of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import torch

from rlinf.algorithms.aggregation import compute_loss_denominators
from rlinf.algorithms.registry import policy_loss
from rlinf.config.schema.algorithm import ActorLossConfig, CISPOLossConfig, GSPOLossConfig

if TYPE_CHECKING:
    from rlinf.algorithms.types import Metrics


LENGTHS = [3, 2, 4]
SEQUENCE_IDS = torch.repeat_interleave(torch.arange(3), torch.tensor(LENGTHS))
LOGPROBS = [-1.0, -0.5, -2.0, -0.3, -0.7, -1.1, -0.9, -0.4, -3.0]
OLD = [-1.2, -0.9, -1.5, -0.3, -0.2, -1.0, -1.4, -0.6, -0.1]
ADVANTAGES = [1.0, 1.0, 1.0, -2.0, -2.0, 0.5, 0.5, 0.5, 0.5]
MASK = [True, True, True, True, True, True, True, True, False]
CONFIGS = {
    "gspo": GSPOLossConfig(clip_ratio_low=0.1, clip_ratio_high=0.05),
    "cispo": CISPOLossConfig(clip_ratio_low=0.3, clip_ratio_high=0.4),
    "actor": ActorLossConfig(clip_ratio_low=0.1, clip_ratio_high=0.05, loss_agg_func="seq-mean-token-mean"),
}


def compute(
    loss_type: str, logprobs: torch.Tensor | None = None, *, packed: bool = True, **over: str | torch.Tensor | float
) -> tuple[torch.Tensor, Metrics]:
    tensors = {
        "logprobs": torch.tensor(LOGPROBS, dtype=torch.float64) if logprobs is None else logprobs,
        "old_logprobs": torch.tensor(OLD, dtype=torch.float64),
        "advantages": torch.tensor(ADVANTAGES, dtype=torch.float64),
        "loss_mask": torch.tensor(MASK),
        **{name: value for name, value in over.items() if isinstance(value, torch.Tensor)},
    }
    keys = {name: value for name, value in over.items() if not isinstance(value, torch.Tensor)}
    ids = SEQUENCE_IDS
    if not packed:
        tensors, ids = {name: rows(tensor) for name, tensor in tensors.items()}, None
    denominators = compute_loss_denominators(policy_mask=tensors["loss_mask"], max_tokens=4, sequence_ids=ids)
    return policy_loss(
        loss_type, **tensors, denominators=denominators, sequence_ids=ids, **{**asdict(CONFIGS[loss_type]), **keys}
    )


def rows(tensor: torch.Tensor) -> torch.Tensor:
    """[T] to [N, L], padded on the left."""
    parts = tensor.split(LENGTHS)
    return torch.stack([torch.cat([tensor.new_zeros(4 - len(part)), part]) for part in parts])


def clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)
