"""Shares of a pack hold every token once, cost about the same, and attend to what the whole pack attends to."""

from __future__ import annotations

import pytest
import torch

from rlinf.data.packing import PackedSequences, pack_responses, pack_sequences
from rlinf.models.language.context_parallel import ContextShare, attend_parts, plan_context
from rlinf.models.language.packed_attention import attend, plan_attention

PROMPT = tuple(range(5))
RAGGED = [[1], [2, 3], [4, 5, 6], list(range(40)), list(range(13)), [7] * 22]
PACKS = {
    "ragged": pack_sequences(RAGGED),
    "one token": pack_sequences([[3]]),
    "shared": pack_responses([PROMPT] * 3, [(1, 2), tuple(range(30)), (5,)], share_prompts=True)[0],
}


@pytest.mark.parametrize("pack", PACKS.values(), ids=PACKS.keys())
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_token_is_on_one_rank(pack: PackedSequences, ranks: int) -> None:
    shares = plan_context(pack, ranks, linear_cost=2.0)
    assert sorted(torch.cat([share.tokens for share in shares]).tolist()) == list(range(pack.num_tokens))


def test_long_sequences_are_split_so_that_ranks_attend_to_equally_much() -> None:
    def attended(share: ContextShare) -> int:
        return sum(sum(range(begin + 1, begin + 1 + last - first)) for begin, (first, last), _ in share.parts)

    one, other = (attended(share) for share in plan_context(pack_sequences([list(range(1000))]), 2, linear_cost=1.0))
    assert one + other == 1000 * 1001 // 2
    assert abs(one - other) < 0.02 * one


def test_short_sequences_stay_whole() -> None:
    shares = plan_context(pack_sequences([[1] * 10] * 8), 2, linear_cost=100.0)
    assert [len(share.parts) for share in shares] == [4, 4]


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("pack", PACKS.values(), ids=PACKS.keys())
def test_ranks_attend_to_what_the_whole_pack_attends_to(pack: PackedSequences, window: int | None) -> None:
    generator = torch.Generator().manual_seed(1)
    query = torch.randn(pack.num_tokens, 4, 8, generator=generator, dtype=torch.float64)
    key, value = (torch.randn(pack.num_tokens, 2, 8, generator=generator, dtype=torch.float64) for _ in "kv")
    expected = attend(query, key, value, plan_attention(pack), scaling=0.4, window=window)
    for share in plan_context(pack, 2, linear_cost=2.0):
        padded = torch.cat([query[share.tokens], torch.ones(2, 4, 8, dtype=torch.float64)])
        found = attend_parts(padded, key, value, share, scaling=0.4, window=window)
        assert torch.allclose(found[:-2], expected[share.tokens], atol=1e-12)
        assert not found[-2:].any()
