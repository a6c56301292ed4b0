"""Which engine a request goes to."""

from __future__ import annotations

import pytest

from rlinf.hybrid_engines.generation.engine_choice import choose_engine


@pytest.mark.parametrize(
    ("load", "home", "chosen"),
    [([0, 0, 0], 1, 1), ([0, 1, 0], 1, 1), ([1, 2, 0], 1, 2), ([0, 2, 0], 1, 2), ([0, 9, 9], 2, 0), ([5], 0, 0)],
)
def test_a_request_leaves_its_home_only_where_another_engine_is_clearly_less_loaded(
    load: list[int], home: int, chosen: int
) -> None:
    assert choose_engine(load, home) == chosen
