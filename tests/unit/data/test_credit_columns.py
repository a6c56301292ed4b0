"""Tokens of an episode in the order of time, and back to where they lie."""

from __future__ import annotations

from dataclasses import replace

import torch

from rlinf.data.credit_columns import CreditColumns
from rlinf.data.messages.responses import ResponseBatch
from tests.unit.data.messages.response_samples import Sample, batch_of


def branched() -> ResponseBatch:
    """Return an episode of two branches, whose first one continues after the second; and one of one branch."""
    batch = batch_of([Sample(token_ids=(1, 2, 3, 4, 5, 6)), Sample(token_ids=(7, 8))])
    first = replace(batch.responses[0], branch_lengths=(4, 2), turn_spans=((0, 2), (4, 6), (3, 4)))
    return replace(batch, responses=(first, batch.responses[1]), prompt_ids=((1,), (1,), (1,)))


def test_a_column_has_what_was_sampled_turn_by_turn() -> None:
    columns = CreditColumns.of(branched())
    assert [column.tolist() for column in columns.gather(torch.arange(1, 9))] == [[1, 2, 5, 6, 4], [7, 8]]


def test_columns_go_back_to_where_their_tokens_lie() -> None:
    columns = CreditColumns.of(branched())
    values = torch.arange(1, 9).float()
    assert columns.scatter(columns.gather(values)).tolist() == [1, 2, 0, 4, 5, 6, 7, 8]
    mask = columns.scatter(columns.gather(torch.ones(8, dtype=torch.bool)))
    assert mask.dtype == torch.bool
    assert mask.tolist() == [True, True, False, True, True, True, True, True]


def test_agents_have_columns_of_their_own() -> None:
    batch = branched()
    first = replace(batch.responses[0], turn_agents=("", "worker.1", ""))
    batch = replace(batch, responses=(first, replace(batch.responses[1], group_id=4)))
    columns = CreditColumns.of(batch, by_agent=True)
    assert [column.tolist() for column in columns.gather(torch.arange(1, 9))] == [[1, 2, 4], [5, 6], [7, 8]]
    assert columns.episodes == (0, 0, 1)
    assert columns.roles == ("", "worker", "")
    assert len(set(columns.group_ids(batch).tolist())) == 3
    assert columns.numbers.tolist() == [0, 0, 0, 0, 1, 1, 2, 2]
    assert columns.weights(torch.ones(8, dtype=torch.bool)).tolist() == [0.5, 0.5, 0, 0.5, 0.5, 0.5, 1, 1]
    left_out = torch.tensor([True, True, True, True, False, False, True, True])
    assert columns.weights(left_out)[:4].tolist() == [1, 1, 0, 1]
    assert CreditColumns.of(batch).roles == ("", "")


def test_rewards_of_turns_lie_at_their_last_tokens() -> None:
    batch = branched()
    assert CreditColumns.of(batch).turn_rewards(batch) is None
    first = replace(batch.responses[0], turn_agents=("", "worker.1", ""), turn_rewards=(0.5, 0.25, -1.0))
    second = replace(batch.responses[1], turn_spans=((0, 1), (1, 2)), turn_rewards=(2.0, 0.0))
    batch = replace(batch, responses=(first, second))
    found = CreditColumns.of(batch).turn_rewards(batch)
    assert found is not None
    assert [own.tolist() for own in found] == [[0, 0.5, 0, 0.25, -1], [2, 0]]
    by_agent = CreditColumns.of(batch, by_agent=True).turn_rewards(batch)
    assert by_agent is not None
    assert [own.tolist() for own in by_agent] == [[0, 0.5, -1], [0, 0.25], [2, 0]]


def test_a_single_branch_keeps_the_tokens_in_between() -> None:
    batch = batch_of([Sample(token_ids=(1, 2, 3), loss_mask=(True, False, True))])
    assert [where.tolist() for where in CreditColumns.of(batch).indices] == [[0, 1, 2]]
