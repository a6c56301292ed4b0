"""Which tokens of a pack a rank works on, and what its layers need to know of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist

from rlinf.data.packing import PackedSequences
from rlinf.models.context_parallel import ContextGather, ContextShare, SumOverRanks, attend_parts, plan_context
from rlinf.models.packed_attention import AttentionPlan, attend, plan_attention


@dataclass(frozen=True, slots=True)
class StagePlan:
    """A pack as a rank of a stage sees it.

    Attributes:
        token_ids: int64 [T']; padded to a multiple of the tensor-parallel ranks under sequence parallelism.
        rotary: float32 [T', 1, 1, D]; angles of the tokens' positions.
        attention: Which of them attend to which; None under context parallelism.
        share: The rank's tokens under context parallelism.
        gather: Makes keys and values whole under context parallelism.
        local: int64 [T]; where each token of the pack lies on this rank, -1 if it does not. None if all do in order.
    """

    token_ids: torch.Tensor
    rotary: torch.Tensor
    attention: AttentionPlan | None
    share: ContextShare | None = None
    gather: ContextGather | None = None
    local: torch.Tensor | None = None

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, window: int | None
    ) -> torch.Tensor:
        """Return [T', H, D] attention of this rank's queries [T', H, D], keys and values [T', H_kv, D]."""
        if self.share is None or self.gather is None:
            assert self.attention is not None
            return attend(query, key, value, self.attention, window=window)
        return attend_parts(query, self.gather(key), self.gather(value), self.share, window=window)

    def own_rows(self, rows: torch.Tensor, previous: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return those rows whose preceding token is on this rank, and where that lies.

        Args:
            rows: int64 [n]; tokens of the pack.
            previous: int64 [n]; the token before each.
        """
        if self.local is None:
            return rows, previous
        where = self.local[previous]
        return rows[where >= 0], where[where >= 0]

    def whole(self, found: torch.Tensor, rows: torch.Tensor, num_tokens: int) -> torch.Tensor:
        """Return [T] that holds what all ranks found of their rows, and 0 elsewhere."""
        spread = torch.zeros(num_tokens, dtype=found.dtype, device=found.device).index_copy(0, rows, found)
        if self.gather is None:
            return spread
        if found.dtype == torch.bool:
            return SumOverRanks.apply(spread.int(), self.gather.group).bool()  # type: ignore[no-any-return, no-untyped-call]
        return SumOverRanks.apply(spread, self.gather.group)  # type: ignore[no-any-return, no-untyped-call]


def plan_stage(
    packed: PackedSequences,
    frequencies: torch.Tensor,
    *,
    multiple: int,
    context: dist.ProcessGroup,
    linear_cost: float,
) -> StagePlan:
    """Lay out a pack for the ranks of a stage.

    Args:
        packed: On the device.
        frequencies: float32 [D / 2]; of the rotary embedding.
        multiple: Of which the number of tokens is made.
        context: The context-parallel ranks.
        linear_cost: See ``plan_context``.
    """
    if context.size() == 1:
        token_ids, rotary = _layers_input(packed.token_ids, packed.position_ids, frequencies, multiple)
        return StagePlan(token_ids, rotary, plan_attention(packed))
    shares = plan_context(packed, context.size(), linear_cost=linear_cost)
    share = shares[context.rank()]
    token_ids, rotary = _layers_input(
        packed.token_ids[share.tokens], packed.position_ids[share.tokens], frequencies, multiple
    )
    lengths = [max(1, -(-len(each.tokens) // multiple)) * multiple for each in shares]
    local = torch.full_like(packed.token_ids, -1)
    local[share.tokens] = torch.arange(len(share.tokens), device=local.device)
    return StagePlan(token_ids, rotary, None, share, ContextGather(shares, lengths, context), local)


def _layers_input(
    token_ids: torch.Tensor, positions: torch.Tensor, frequencies: torch.Tensor, multiple: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return token ids [T'] and angles [T', 1, 1, D], padded to a multiple of at least one."""
    padding = max(multiple, len(token_ids) + -len(token_ids) % multiple) - len(token_ids)
    token_ids, positions = (torch.nn.functional.pad(tensor, (0, padding)) for tensor in (token_ids, positions))
    angles = positions.to(frequencies.dtype).unsqueeze(1) * frequencies
    return token_ids, torch.cat([angles, angles], dim=1).view(-1, 1, 1, 2 * len(frequencies))
