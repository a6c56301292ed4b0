"""What a response claims: the last box, tag or number."""

from __future__ import annotations

import pytest

from rlinf.algorithms.rewards.extraction import last_boxed, last_number, last_tagged


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        (r"so \boxed{5}", "5"),
        (r"\boxed{1} no, \boxed{ \frac{1}{2} }.", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{1} then \boxed{2", None),
        (r"\boxed{", None),
        (r"\boxed{\ ", None),
        ("5", None),
    ],
)
def test_the_last_box_counts_when_it_is_closed(text: str, claim: str | None) -> None:
    assert last_boxed(text) == claim


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        ("<answer>a</answer> <answer> b </answer>", "b"),
        ("<answer>a</answer> <answer>b", "a"),
        ("</answer><answer>", None),
        ("<answer>", None),
    ],
)
def test_the_last_closed_tag_counts(text: str, claim: str | None) -> None:
    assert last_tagged(text, "answer") == claim


@pytest.mark.parametrize(
    ("text", "claim"), [("12 and 1,234.5.", "1234.5"), ("-3e5", "-3e5"), ("=.5", ".5"), ("none", None)]
)
def test_the_last_number_counts(text: str, claim: str | None) -> None:
    assert last_number(text) == claim
