"""Which tokens of a pack a rank works on, and what its layers need to know of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist

from rlinf.data.packing import PackedSequences
from rlinf.models.language.context_parallel import ContextGather, ContextShare, SumOverRanks, attend_parts, plan_context
from rlinf.models.language.expert_routing import RankRouting
from rlinf.models.language.packed_attention import AttentionPlan, attend, plan_attention


@dataclass(slots=True)
class TokenPlan:
    """A pack as a rank sees it.

    Attributes:
        token_ids: int64 [T']; the rank's tokens, padded to a multiple.
        position_ids: int64 [T'].
        places: int64 [T']; where they lie in the pack, -1 for padding.
        attention: Which of them attend to which; None under context parallelism.
        share: The rank's tokens under context parallelism.
        gather: Makes keys and values whole under context parallelism.
        local: int64 [T]; where each token of the pack lies on this rank, -1 if it does not. None if all do in order.
        routing: What routers of experts do; None leaves it to them.
    """

    token_ids: torch.Tensor
    position_ids: torch.Tensor
    places: torch.Tensor
    attention: AttentionPlan | None
    share: ContextShare | None = None
    gather: ContextGather | None = None
    local: torch.Tensor | None = None
    routing: RankRouting | None = None

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scaling: float | None = None,
        window: int | None = None,
        dropout: float = 0.0,
    ) -> torch.Tensor:
        """Return [T', H, D] attention of this rank's queries [T', H, D], keys and values [T', H_kv, D].

        Args:
            query: See ``attend`` and ``attend_parts``, here and below.
            key: [T', H_kv, D].
            value: [T', H_kv, D_v].
            scaling: Factor on the scores; None takes ``D ** -0.5``.
            window: Tokens that each token sees, itself included; None is all.
            dropout: Probability of dropping a weight; not under context parallelism.
        """
        if self.share is None or self.gather is None:
            assert self.attention is not None
            return attend(query, key, value, self.attention, scaling=scaling, window=window, dropout=dropout)
        return attend_parts(query, self.gather(key), self.gather(value), self.share, scaling=scaling, window=window)

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


def plan_tokens(
    packed: PackedSequences, *, context: dist.ProcessGroup | None, hidden_size: int, multiple: int = 1
) -> TokenPlan:
    """Lay out a pack for the ranks that share it.

    Args:
        packed: On the device.
        context: The context-parallel ranks; None if there is one.
        hidden_size: Width of the model: a token costs its layers six times that in products, and each token that it
            attends to one.
        multiple: Of which the number of tokens is made.
    """
    if context is None or context.size() == 1:
        places = torch.arange(packed.num_tokens, device=packed.token_ids.device)
        return TokenPlan(*_padded(packed, places, multiple), plan_attention(packed))
    shares = plan_context(packed, context.size(), linear_cost=6.0 * hidden_size)
    share = shares[context.rank()]
    lengths = [max(1, -(-len(each.tokens) // multiple)) * multiple for each in shares]
    local = torch.full_like(packed.token_ids, -1)
    local[share.tokens] = torch.arange(len(share.tokens), device=local.device)
    gather = ContextGather(shares, lengths, context)
    return TokenPlan(*_padded(packed, share.tokens, multiple), None, share, gather, local)


def _padded(
    packed: PackedSequences, places: torch.Tensor, multiple: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return token ids, positions and places [T'] of some tokens, padded to a multiple of at least one."""
    padding = max(multiple, len(places) + -len(places) % multiple) - len(places)
    ids, positions = (
        torch.nn.functional.pad(of[places], (0, padding)) for of in (packed.token_ids, packed.position_ids)
    )
    return ids, positions, torch.nn.functional.pad(places, (0, padding), value=-1)
