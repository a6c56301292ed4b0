"""Training engines: micro-batched forward and backward passes, optimizer steps, sharded state.

Knows nothing of RL: the loss comes in as a function. Extend by another ``TrainEngine`` (pipeline schedules, say) and
its registration in ``train_engines``, which ``actor.training_backend`` chooses from. May import what is below
``workers``.
"""

from __future__ import annotations

from rlinf.config.registries import train_engines

__all__ = ["train_engines"]
