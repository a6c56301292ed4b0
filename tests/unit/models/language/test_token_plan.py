"""A plan says which tokens a rank has and where they lie; without other ranks it has all of them."""

from __future__ import annotations

import torch

from rlinf.data.packing import pack_sequences
from rlinf.models.language.packed_attention import attend, plan_attention
from rlinf.models.language.token_plan import plan_tokens

PACK = pack_sequences([[5, 6, 7], [8, 9]])


def test_alone_a_rank_has_all_tokens_and_padding_to_a_multiple() -> None:
    plan = plan_tokens(PACK, context=None, hidden_size=8, multiple=4)
    assert plan.token_ids.tolist() == [5, 6, 7, 8, 9, 0, 0, 0]
    assert plan.position_ids.tolist() == [0, 1, 2, 0, 1, 0, 0, 0]
    assert plan.places.tolist() == [0, 1, 2, 3, 4, -1, -1, -1]
    rows, before = torch.tensor([1, 4]), torch.tensor([0, 3])
    assert [part.tolist() for part in plan.own_rows(rows, before)] == [[1, 4], [0, 3]]
    assert plan.whole(torch.tensor([0.5, 2.0]), rows, 5).tolist() == [0, 0.5, 0, 0, 2.0]


def test_alone_it_attends_as_the_whole_pack_does() -> None:
    query, key, value = torch.randn(3, 5, 2, 4, generator=torch.Generator().manual_seed(0))
    plan = plan_tokens(PACK, context=None, hidden_size=8)
    found = plan.attend(query, key, value, scaling=0.3, window=2)
    assert torch.equal(found, attend(query, key, value, plan_attention(PACK), scaling=0.3, window=2))


def test_tokens_that_pad_the_pack_get_no_attention() -> None:
    query, key, value = torch.randn(3, 8, 2, 4, generator=torch.Generator().manual_seed(0))
    found = plan_tokens(PACK, context=None, hidden_size=8, multiple=4).attend(query, key, value)
    assert torch.equal(found[:5], attend(query[:5], key[:5], value[:5], plan_attention(PACK)))
    assert found[5:].tolist() == torch.zeros(3, 2, 4).tolist()
