"""Which sampling parameters leave out a part of the vocabulary."""

from __future__ import annotations

from typing import Any

import pytest

from rlinf.data.messages.generation import SamplingParams


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, False),
        ({"top_k": 5}, True),
        ({"top_k": 0}, False),
        ({"top_p": 0.9}, True),
        ({"min_p": 0.1}, True),
        ({"min_new_tokens": 1}, True),
        ({"repetition_penalty": 1.2}, False),
        ({"temperature": 0.0, "top_k": 5}, False),
        ({"temperature": 0.0, "min_new_tokens": 1}, True),
    ],
)
def test_filters_truncate_unless_the_most_likely_token_is_taken(keys: dict[str, Any], expected: bool) -> None:
    assert SamplingParams(**keys).truncates == expected
