"""Context parallelism for packed sequences: ranks compute shares of the tokens, and see the keys of all.

Short sequences stay whole; of long ones each rank takes two mirrored parts, so that all attend to equally many tokens.
There is no padding to a multiple of the ranks: sequences of one token are possible. Keys and values, which have few
heads, are gathered in every layer; their gradients are summed by the backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.nn import functional

from rlinf.data.packing import PackedSequences


class Part(NamedTuple):
    """Tokens ``begin`` to ``end`` of a sequence, which lie in the pack as its own."""

    sequence: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class ContextShare:
    """The tokens of one rank, and what they attend to.

    Attributes:
        tokens: int64 [n]; positions in the pack.
        parts: For each part of a sequence: its first position, its queries among ``tokens`` (begin and end), and the
            positions in the pack of the sequence's tokens up to its end.
    """

    tokens: torch.Tensor
    parts: tuple[tuple[int, tuple[int, int], torch.Tensor], ...]


def plan_context(packed: PackedSequences, num_ranks: int, *, linear_cost: float) -> list[ContextShare]:
    """Distribute a pack over ranks; the same on each of them.

    Args:
        packed: The pack.
        num_ranks: Ranks.
        linear_cost: What a token costs besides attention, in tokens attended to.

    Returns:
        The shares of all ranks; every token is in one of them.
    """
    shares: list[list[Part]] = [[] for _ in range(num_ranks)]
    loads = [0.0] * num_ranks

    def cost(part: Part) -> float:
        return linear_cost * (part.end - part.begin) + (part.end**2 - part.begin**2) / 2

    own = [
        Part(number, shared, length)
        for number, (shared, length) in enumerate(zip(packed.shared, packed.lengths, strict=True))
        if length > shared
    ]
    limit = sum(cost(part) for part in own) / num_ranks / 2
    for part in sorted(own, key=cost, reverse=True):
        if cost(part) > limit and part.end - part.begin >= 2 * num_ranks:
            for rank, pieces in enumerate(_mirrored(part, num_ranks)):
                shares[rank] += pieces
                loads[rank] += sum(cost(piece) for piece in pieces)
        else:
            lightest = loads.index(min(loads))
            shares[lightest].append(part)
            loads[lightest] += cost(part)
    return [_share(packed, parts) for parts in shares]


def attend_parts(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    share: ContextShare,
    *,
    scaling: float | None = None,
    window: int | None = None,
) -> torch.Tensor:
    """Attend from a rank's tokens to those of their sequences up to their own.

    Args:
        query: [n', H, D]; those beyond the share's tokens are padding and get 0.
        key: [T, H_kv, D] of the whole pack.
        value: [T, H_kv, D_v].
        share: The rank's.
        scaling: Factor on the scores; None takes ``D ** -0.5``.
        window: Tokens that each token sees, itself included; None is all.

    Returns:
        [n', H, D_v].
    """
    parts = []
    for begin, (first, last), keys in share.parts:
        q, k, v = (t.transpose(0, 1).unsqueeze(0) for t in (query[first:last], key[keys], value[keys]))
        positions = torch.arange(begin, begin + last - first, device=query.device).unsqueeze(1)
        distance = positions - torch.arange(len(keys), device=query.device)
        mask = distance >= 0 if window is None else (distance >= 0) & (distance < window)
        found = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scaling, enable_gqa=True)
        parts.append(found.squeeze(0).transpose(0, 1))
    num_padding = len(query) - len(share.tokens)
    # Not a constant: the gradient of queries, keys and values must exist on every rank.
    padding = query[:1, :, :1].expand(num_padding, -1, value.shape[-1]) * 0 + value.sum() * 0 + key.sum() * 0
    return torch.cat([*parts, padding])


class ContextGather:
    """Makes the keys or values of a pack whole on every rank of a context-parallel group.

    Args:
        shares: Of all ranks.
        lengths: Tokens that each rank has, padding included.
        group: The ranks.
    """

    def __init__(self, shares: Sequence[ContextShare], lengths: Sequence[int], group: dist.ProcessGroup) -> None:
        self.group = group
        self.longest = max(lengths)
        order = torch.cat([share.tokens for share in shares])
        places = torch.cat(
            [
                rank * self.longest + torch.arange(len(share.tokens), device=order.device)
                for rank, share in enumerate(shares)
            ]
        )
        self.places = torch.empty_like(order).index_copy(0, order, places)

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return [T, ...] of a rank's [n', ...]; the gradient of the rank's part is summed over all ranks."""
        result: torch.Tensor = _Gather.apply(tensor, self)  # type: ignore[no-untyped-call]
        return result


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, gather: ContextGather) -> torch.Tensor:
        ctx.gather, ctx.length = gather, len(tensor)
        padded = tensor.new_zeros(gather.longest, *tensor.shape[1:])
        padded[: len(tensor)] = tensor
        gathered = padded.new_empty(gather.group.size() * gather.longest, *tensor.shape[1:])
        dist.all_gather_into_tensor(gathered, padded, group=gather.group)
        return gathered[gather.places]

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        gather: ContextGather = ctx.gather
        spread = grad.new_zeros(gather.group.size() * gather.longest, *grad.shape[1:])
        spread[gather.places] = grad
        own = grad.new_empty(gather.longest, *grad.shape[1:])
        dist.reduce_scatter_tensor(own, spread, group=gather.group)
        return own[: ctx.length], None


class SumOverRanks(torch.autograd.Function):
    """Sums what ranks computed of different tokens; each takes the gradient of its own, as all compute one loss."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        """Return the sum."""
        del ctx
        total = tensor.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return the gradient as it is."""
        del ctx
        return grad, None


def _mirrored(part: Part, num_ranks: int) -> list[list[Part]]:
    """Return two parts for each rank: the first with the last, the second with the last but one, and so on."""
    count = 2 * num_ranks
    bounds = [part.begin + (part.end - part.begin) * index // count for index in range(count + 1)]
    pieces = [Part(part.sequence, bounds[index], bounds[index + 1]) for index in range(count)]
    return [[pieces[rank], pieces[count - 1 - rank]] for rank in range(num_ranks)]


def _share(packed: PackedSequences, parts: list[Part]) -> ContextShare:
    device, boundaries = packed.token_ids.device, packed.boundaries
    tokens: list[torch.Tensor] = [torch.empty(0, dtype=torch.int64)]
    found, end = [], 0
    for part in parts:
        start = boundaries[part.sequence]
        tokens.append(packed.places[start + part.begin : start + part.end])
        first, end = end, end + part.end - part.begin
        found.append((part.begin, (first, end), packed.places[start : start + part.end].to(device)))
    return ContextShare(torch.cat(tokens).to(device), tuple(found))
