"""``reward_type: vqa``: short answers."""

from __future__ import annotations

import pytest
from scored_responses import judge

from rlinf.config.schema.reward import VQARewardConfig


@pytest.mark.parametrize(
    ("match", "response", "reference", "right"),
    [
        ("text", "A red  bus.", "red bus", True),
        ("text", "two", ["3", "2"], True),
        ("text", "I see <answer>1,000</answer>", "1000", True),
        ("text", r"\boxed{Red-ish}", "red-ish", True),
        ("text", "3.5", "35", False),
        ("text", "red", "bus", False),
        ("choice", "(b) a cat", "B", True),
        ("choice", "I think it is B", "B. cat", True),
        ("choice", "<answer>b</answer>", "B", True),
        ("choice", "A dog", "B", False),
        ("choice", "nothing", "B", False),
        ("number", "about 10.4 m", "10", True),
        ("number", "about 10.6 m", "10", False),
        ("number", "many", "10", False),
        ("number", "9" * 500, "10", False),
    ],
)
def test_short_answers_are_compared_as_they_are_meant(
    match: str, response: str, reference: str | list[str], right: bool
) -> None:
    cfg = VQARewardConfig(reward_type="vqa", match=match, relative_tolerance=0.05)
    assert judge(cfg, response, reference) == float(right)
