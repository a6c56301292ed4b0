"""``actor.megatron``: how Megatron-Core spreads a model over ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rlinf.config.schema.base import ConfigSection, PositiveInt
from rlinf.placement.parallel import ParallelLayout


@dataclass(frozen=True, kw_only=True)
class MegatronConfig(ConfigSection):
    """``actor.megatron``; read where ``training_backend`` is ``megatron``."""

    tensor_model_parallel_size: PositiveInt = 1
    """Ranks over which every layer's matrices are split."""
    pipeline_model_parallel_size: PositiveInt = 1
    """Stages, each with a share of the layers."""
    virtual_pipeline_model_parallel_size: PositiveInt = 1
    """Shares of the layers on each stage; more than one is the interleaved schedule."""
    context_parallel_size: PositiveInt = 1
    """Ranks over which the tokens of a pack are split."""
    expert_model_parallel_size: PositiveInt = 1
    """Ranks over which the experts of a layer are spread."""
    expert_tensor_parallel_size: PositiveInt = 1
    """Ranks over which each expert's matrices are split."""
    sequence_parallel: bool | None = None
    """Whether norms work on a share of the tokens of each tensor rank; null does so with several tensor ranks."""
    recompute: Literal["none", "selective", "full"] = "none"
    """What the backward pass computes again: nothing, attention, or every layer."""
    overlap_grad_reduce: bool = False
    """Reduce gradients while the backward pass goes on."""

    @property
    def replica_size(self) -> int:
        """Ranks that together hold one replica of the model."""
        return self.tensor_model_parallel_size * self.pipeline_model_parallel_size * self.context_parallel_size

    def layout(self, world_size: int) -> ParallelLayout:
        """Return how these ranks share batch and model; ``ParallelLayout.problems`` says if they cannot.

        Args:
            world_size: Ranks there are.
        """
        tensor = self.tensor_model_parallel_size
        return ParallelLayout(
            data=max(1, world_size // self.replica_size),
            tensor=tensor,
            pipeline=self.pipeline_model_parallel_size,
            virtual_pipeline=self.virtual_pipeline_model_parallel_size,
            context=self.context_parallel_size,
            expert=self.expert_model_parallel_size,
            expert_tensor=self.expert_tensor_parallel_size,
            sequence=tensor > 1 if self.sequence_parallel is None else self.sequence_parallel,
        )
