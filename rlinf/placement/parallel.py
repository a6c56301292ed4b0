"""How the ranks of a training engine share the batch (data) and the model (tensor, pipeline, context, expert)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

Axis = Literal["tensor", "context", "expert", "data", "pipeline"]


class Seat(NamedTuple):
    """Coordinates of a rank, one for each axis; ranks that differ in ``data`` alone hold the same weights.

    ``expert`` counts within the same ranks as ``tensor``, ``context`` and ``data``: experts are spread over them anew.
    """

    data: int
    tensor: int
    pipeline: int
    context: int
    expert: int


@dataclass(frozen=True, slots=True)
class ParallelLayout:
    """Sizes of the axes. Ranks are numbered in Megatron-Core's order: tensor fastest, then context, data, pipeline.

    Attributes:
        data: Replicas, each with a share of the batch.
        tensor: Ranks over which every layer's matrices are split.
        pipeline: Stages, each with a share of the layers.
        virtual_pipeline: Shares of the layers on each stage (the interleaved schedule).
        context: Ranks over which the tokens of a sequence are split.
        expert: Ranks over which the experts of a layer are spread.
        expert_tensor: Ranks over which each expert's matrices are split.
        sequence: Whether norms work on a share of the tokens of each tensor rank.
    """

    data: int
    tensor: int = 1
    pipeline: int = 1
    virtual_pipeline: int = 1
    context: int = 1
    expert: int = 1
    expert_tensor: int = 1
    sequence: bool = False

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.data * self.tensor * self.pipeline * self.context

    def seat(self, rank: int) -> Seat:
        """Return the coordinates of a rank, from 0 to ``world_size - 1``."""
        outer, tensor = divmod(rank, self.tensor)
        outer, context = divmod(outer, self.context)
        pipeline, data = divmod(outer, self.data)
        within_stage = rank % (self.world_size // self.pipeline)
        return Seat(data, tensor, pipeline, context, within_stage // self.expert_tensor % self.expert)

    def groups(self, axis: Axis) -> list[tuple[int, ...]]:
        """Return the groups of ranks along an axis, each in the order of the axis; every rank is in exactly one.

        Args:
            axis: Its ranks differ in this coordinate alone; those of ``expert`` together hold all experts of a layer.
        """
        members: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for rank in range(self.world_size):
            if axis == "expert":
                # Experts know no other split but that of their own matrices.
                stage, within = divmod(rank, self.world_size // self.pipeline)
                replica, place = divmod(within, self.expert_tensor * self.expert)
                members[stage, replica, place % self.expert_tensor].append(rank)
            else:
                seat = self.seat(rank)
                others = seat._replace(**{axis: 0}, expert=0)
                members[tuple(others)].append(rank)
        return [tuple(ranks) for ranks in members.values()]

    def problems(
        self,
        *,
        world_size: int,
        num_layers: int | None = None,
        num_heads: int | None = None,
        num_kv_heads: int | None = None,
        num_experts: int | None = None,
    ) -> Iterator[str]:
        """Yield why these ranks cannot hold the model that way, one sentence each.

        Args:
            world_size: Ranks there are.
            num_layers: Decoder layers; None leaves out what depends on them, here and below.
            num_heads: Query heads of a layer.
            num_kv_heads: Key and value heads of a layer.
            num_experts: Experts of a layer; 0 for a dense model.
        """
        if self.world_size != world_size:
            yield (
                f"data {self.data} x tensor {self.tensor} x context {self.context} x pipeline {self.pipeline} = "
                f"{self.world_size} ranks, but there are {world_size}."
            )
        chunks = self.pipeline * self.virtual_pipeline
        if num_layers is not None and num_layers % chunks:
            yield f"{num_layers} layers cannot be split evenly over {chunks} pipeline stages."
        if self.virtual_pipeline > 1 and self.pipeline == 1:
            yield f"virtual_pipeline {self.virtual_pipeline} needs several pipeline stages; there is one."
        for heads, what in ((num_heads, "attention heads"), (num_kv_heads, "key and value heads")):
            if heads is not None and heads % self.tensor:
                yield f"{heads} {what} cannot be split over {self.tensor} tensor ranks."
        yield from self._expert_problems(num_experts)

    def _expert_problems(self, num_experts: int | None) -> Iterator[str]:
        if self.expert == 1 and not num_experts:
            return
        if self.expert == 1 and self.expert_tensor != self.tensor:
            yield f"experts on {self.tensor} tensor ranks need expert_tensor {self.tensor}, or several expert ranks."
        if num_experts is not None and (num_experts == 0 or num_experts % self.expert):
            yield f"{num_experts} experts cannot be spread over {self.expert} expert ranks."
        if self.data % self.expert:
            yield f"data {self.data} is not a multiple of expert {self.expert}: ranks of a replica would share experts."
        if self.tensor > 1 and not self.sequence:
            yield "experts with several tensor ranks need sequence=true, or each token is routed once per tensor rank."
