"""What is compared as mathematics, and what can be told at sight."""

from __future__ import annotations

import pytest

from rlinf.algorithms.rewards.math_answers import Claim, find_claim, same_at_sight, solutions


@pytest.mark.parametrize(
    ("response", "require_boxed", "claim"),
    [
        (r"so \boxed{5}", True, Claim("5", boxed=True)),
        (r"\boxed{5} and 6", False, Claim("5", boxed=True)),
        ("so 5", True, None),
        ("so 5", False, Claim("so 5", boxed=False)),
        ("1 + 1\n#### 2", False, Claim("2", boxed=False)),
        ("", False, None),
        ("#### ", False, None),
        ("a" * 5000 + "5", False, Claim("a" * 999 + "5", boxed=False)),
    ],
)
def test_a_box_counts_before_the_end_of_the_text(response: str, require_boxed: bool, claim: Claim | None) -> None:
    assert find_claim(response, require_boxed=require_boxed) == claim


@pytest.mark.parametrize(
    ("reference", "form", "texts"),
    [
        (42, "latex", ["42"]),
        ("1,234", "latex", ["1234"]),
        (r"\frac{1}{2}", "latex", [r"\frac{1}{2}"]),
        (["1", 2.5], "latex", ["1", "2.5"]),
        ("He buys 2 ... <<1+1=2>>2\n#### 1,042", "gsm8k", ["1042"]),
        ("42", "gsm8k", ["42"]),
    ],
)
def test_references_become_solutions(reference: int | str | list[float | str], form: str, texts: list[str]) -> None:
    assert solutions(reference, form) == texts


@pytest.mark.parametrize(
    ("claim", "solution", "same"),
    [
        (Claim("5", boxed=True), "5", True),
        (Claim("+05", boxed=True), "5", True),
        (Claim("6", boxed=True), "5", False),
        (Claim("1,000", boxed=True), "1000", True),
        (Claim("x", boxed=True), "x", True),
        (Claim("1/2", boxed=True), "0.5", None),
        (Claim("0.50", boxed=True), "0.5", None),
        (Claim("I add and get 46.", boxed=False), "46", True),
        (Claim("I get 10/5", boxed=False), "5", True),
        (Claim("I get 10/5", boxed=False), "2", None),
        (Claim("$x_5", boxed=False), "5", None),
        (Claim("9" * 5000, boxed=True), "5", None),
        (Claim("", boxed=True), "", False),
    ],
)
def test_what_needs_no_mathematics_is_told_at_sight(claim: Claim, solution: str, same: bool | None) -> None:
    assert same_at_sight(claim, solution) is same
