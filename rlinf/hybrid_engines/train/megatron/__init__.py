"""Megatron-Core as a training engine: tensor, sequence, pipeline, context and expert parallelism.

Owns everything that knows Megatron-Core; no other package imports it. Outside, tensors have the names and shapes of
Hugging Face. Its layers are used with attention, norm, head and optimizer of our own, which run on CPU (gloo) and CUDA
(NCCL) alike. May import what ``rlinf.hybrid_engines.train`` may. Extend by rows of ``rlinf.models.fused.fusion_rules``.
"""

from __future__ import annotations

from typing import Any

from rlinf.utils.optional import require


def __getattr__(name: str) -> Any:
    if name == "MegatronEngine":
        require("megatron.core", needed_by="actor.training_backend=megatron")
        from rlinf.hybrid_engines.train.megatron.engine import MegatronEngine

        return MegatronEngine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
