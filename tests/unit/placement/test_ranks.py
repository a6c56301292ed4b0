"""Ranks of nodes, written and read."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlinf.errors import PlacementError
from rlinf.placement.ranks import format_ranks, parse_node_ranks


@given(st.sets(st.integers(0, 60), min_size=1))
def test_node_ranks_survive_formatting_and_parsing(ranks: Any) -> None:
    assert parse_node_ranks(format_ranks(ranks), 61) == sorted(ranks)


def test_node_ranks_take_an_int_and_all() -> None:
    assert parse_node_ranks(2, 4) == [2]
    assert parse_node_ranks("all", 3) == [0, 1, 2]


@pytest.mark.parametrize("value", ["", "a", "3-1", "0-2,2", "2,1", "4", "0-9", -1, True, None])
def test_bad_node_ranks_quote_their_path(value: bool | int | str | None) -> None:
    with pytest.raises(PlacementError, match=r"^cluster\.node_groups\[0\]\.node_ranks: "):
        parse_node_ranks(value, 4, path="cluster.node_groups[0].node_ranks")
