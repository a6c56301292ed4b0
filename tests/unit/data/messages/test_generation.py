"""Which sampling parameters leave out a part of the vocabulary, and how a recipe gives them."""

from __future__ import annotations

from typing import Any

import pytest

from rlinf.config.schema.generation import SamplingConfig
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


SAMPLING = SamplingConfig(
    temperature=0.7,
    top_k=11,
    top_p=0.8,
    min_p=0.1,
    repetition_penalty=1.2,
    max_new_tokens=33,
    min_new_tokens=2,
    stop=["x", "yy"],
    stop_token_ids=[4, 5],
)


def test_every_sampling_key_reaches_the_engine() -> None:
    assert SamplingParams.of(SAMPLING, n=6) == SamplingParams(
        temperature=0.7,
        top_k=11,
        top_p=0.8,
        min_p=0.1,
        repetition_penalty=1.2,
        max_new_tokens=33,
        min_new_tokens=2,
        stop=("x", "yy"),
        stop_token_ids=(4, 5),
        n=6,
    )


def test_greedy_sampling_leaves_nothing_out_and_keeps_the_rest() -> None:
    assert SamplingParams.of(SAMPLING, n=1, greedy=True) == SamplingParams(
        temperature=0.0,
        repetition_penalty=1.2,
        max_new_tokens=33,
        min_new_tokens=2,
        stop=("x", "yy"),
        stop_token_ids=(4, 5),
    )
