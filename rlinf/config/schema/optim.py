"""The keys of an AdamW optimizer, wherever a recipe describes one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rlinf.config.schema.base import (
    ConfigSection,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)


@dataclass(frozen=True, kw_only=True)
class AdamWConfig(ConfigSection):
    """AdamW and its schedule."""

    lr: PositiveFloat = 3e-4
    """Learning rate."""
    adam_beta1: Fraction = 0.9
    """Decay of the first moment."""
    adam_beta2: Fraction = 0.999
    """Decay of the second moment."""
    adam_eps: PositiveFloat = 1e-8
    """Added to the denominator."""
    weight_decay: NonNegativeFloat = 0.0
    """Decoupled weight decay."""
    clip_grad: PositiveFloat = 1.0
    """Largest norm of the gradient over all parameters of this optimizer, of all ranks."""
    lr_scheduler: Literal["constant", "linear", "cosine"] = "constant"
    """Course of the learning rate after warm-up, counted in steps of this optimizer."""
    lr_warmup_steps: NonNegativeInt = 0
    """Optimizer steps over which the learning rate rises from 0."""
    min_lr_ratio: Fraction = 0.0
    """Share of the learning rate at which ``linear`` and ``cosine`` end."""
    total_training_steps: PositiveInt | None = None
    """Optimizer steps after which ``linear`` and ``cosine`` have ended; required by those two."""
