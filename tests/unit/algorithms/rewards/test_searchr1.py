"""``reward_type: searchr1``: exact match of what the tags hold."""

from __future__ import annotations

import numpy as np
import pytest
from scored_responses import judge

from rlinf.config.schema.reward import SearchR1RewardConfig
from rlinf.errors import RewardError

SEARCH = SearchR1RewardConfig(reward_type="searchr1", correct_reward=2.0, incorrect_reward=-1.0, format_reward=0.25)


@pytest.mark.parametrize(
    ("response", "reward"),
    [
        ("<answer>The  beatles!</answer>", 2.0),
        ("<answer>Rolling Stones</answer>", -0.75),
        ("The Beatles", -1.0),
        ("<answer>The Beatles", -1.0),
    ],
)
def test_exact_match_is_of_what_the_tags_hold(response: str, reward: float) -> None:
    assert judge(SEARCH, response, ["Fab Four", "Beatles"]) == reward


@pytest.mark.parametrize(
    "reference", ["Paris", {"target": ["paris"]}, {"target": np.array(["x", "Paris"])}, ("Paris",)]
)
def test_references_are_taken_as_data_sets_hold_them(
    reference: str | tuple[str] | dict[str, np.ndarray | list[str]],
) -> None:
    assert judge(SEARCH, "<answer>paris</answer>", reference) == 2.0


@pytest.mark.parametrize("reference", [None, [], {"answer": "x"}, object()])
def test_a_reference_of_another_kind_is_named(reference: object) -> None:
    with pytest.raises(RewardError, match="Correct the dataset"):
        judge(SEARCH, "<answer>paris</answer>", reference)
