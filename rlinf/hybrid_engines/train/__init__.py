"""Training engines: micro-batched forward and backward passes, optimizer steps, sharded state.

Knows nothing of RL: the loss comes in as a function. Extend by another ``TrainEngine`` (pipeline schedules, say) and a
line in ``train_engines``, which ``actor.training_backend`` chooses from. May import what is below ``workers``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rlinf.registry import Registry

if TYPE_CHECKING:
    from rlinf.hybrid_engines.train.train_engine import TrainEngine

train_engines: Registry[Callable[..., TrainEngine]] = Registry("training backend")
train_engines.register_lazy("fsdp", "rlinf.hybrid_engines.train.fsdp:FSDPEngine")
