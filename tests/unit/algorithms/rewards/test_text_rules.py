"""Rules that judge answers of language models."""

from __future__ import annotations

import numpy as np
import pytest

from rlinf.algorithms.rewards import get_reward_class
from rlinf.algorithms.rewards.extraction import last_boxed, last_number, last_tagged
from rlinf.config.schema.reward import OverlongRewardConfig, SearchR1RewardConfig, VQARewardConfig
from rlinf.data.messages.answers import RewardQuery
from rlinf.errors import RewardError


def judge(cfg, response, reference=None, **fields):
    (reward,) = get_reward_class(cfg.reward_type)(cfg)(
        [RewardQuery(prompt="", response=response, reference=reference, **fields)]
    )
    return reward


# -- what an answer claims ---------------------------------------------------------------------------------------------


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
def test_the_last_box_counts_when_it_is_closed(text, claim):
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
def test_the_last_closed_tag_counts(text, claim):
    assert last_tagged(text, "answer") == claim


@pytest.mark.parametrize(
    ("text", "claim"), [("12 and 1,234.5.", "1234.5"), ("-3e5", "-3e5"), ("=.5", ".5"), ("none", None)]
)
def test_the_last_number_counts(text, claim):
    assert last_number(text) == claim


# -- searchr1 ----------------------------------------------------------------------------------------------------------

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
def test_exact_match_is_of_what_the_tags_hold(response, reward):
    assert judge(SEARCH, response, ["Fab Four", "Beatles"]) == reward


@pytest.mark.parametrize(
    "reference", ["Paris", {"target": ["paris"]}, {"target": np.array(["x", "Paris"])}, ("Paris",)]
)
def test_references_are_taken_as_data_sets_hold_them(reference):
    assert judge(SEARCH, "<answer>paris</answer>", reference) == 2.0


@pytest.mark.parametrize("reference", [None, [], {"answer": "x"}, object()])
def test_a_reference_of_another_kind_is_named(reference):
    with pytest.raises(RewardError, match="Correct the dataset"):
        judge(SEARCH, "<answer>paris</answer>", reference)


# -- vqa ---------------------------------------------------------------------------------------------------------------


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
def test_short_answers_are_compared_as_they_are_meant(match, response, reference, right):
    cfg = VQARewardConfig(reward_type="vqa", match=match, relative_tolerance=0.05)
    assert judge(cfg, response, reference) == float(right)


# -- overlong ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "reward"), [(0, 0), (80, 0), (81, -0.05), (90, -0.5), (100, -1), (1000, -1)])
def test_punishment_begins_with_the_buffer_and_ends_at_the_limit(length, reward):
    cfg = OverlongRewardConfig(reward_type="overlong", max_tokens=100, buffer_tokens=20)
    assert judge(cfg, "", num_tokens=length) == pytest.approx(reward)
