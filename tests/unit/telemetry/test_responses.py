"""What is recorded of answers, and shares of right ones against counting."""

from __future__ import annotations

import dataclasses
import itertools
import json

import pytest

from rlinf.data.messages.responses import Response, RewardedGroup
from rlinf.telemetry.responses import evaluation_metrics, pass_at_k, response_metrics, sample_rows
from tests.unit.data.messages.response_samples import Sample, group_of


def answer(
    reward: float,
    *,
    length: int = 2,
    finish_reason: str = "stop",
    terms: dict[str, float] | None = None,
    metrics: dict[str, float] | None = None,
) -> Response:
    sample = Sample(
        prompt=(1, 2, 3),
        token_ids=(7,) * length,
        finish_reason=finish_reason,
        reward=reward,
        reward_terms=terms or {},
        reward_metrics=metrics or {},
    )
    return sample.response


def group_with(*rewards: float) -> RewardedGroup:
    return RewardedGroup.of([answer(reward) for reward in rewards])


def test_rewards_of_turns_count_as_reward_and_make_no_response_correct() -> None:
    plain = dataclasses.replace(answer(1.0))
    shaped = dataclasses.replace(answer(1.25), turn_spans=((0, 1),), turn_rewards=(1.0,))
    group = RewardedGroup.of([plain, shaped])
    assert (group.rewards, group.outcomes) == ((1.0, 1.25), (1.0, 0.25))
    found = evaluation_metrics([group])
    assert (found["eval/accuracy"], found["eval/reward"]) == (0.5, 1.125)
    assert RewardedGroup.of([plain]).outcomes == ()


@pytest.mark.parametrize("num_samples", [1, 2, 5, 6])
def test_pass_at_k_is_the_share_of_draws_with_a_right_answer(num_samples: int) -> None:
    for num_right, k in itertools.product(range(num_samples + 1), range(1, num_samples + 1)):
        draws = list(itertools.combinations([True] * num_right + [False] * (num_samples - num_right), k))
        expected = sum(any(draw) for draw in draws) / len(draws)
        assert pass_at_k(num_samples, num_right, k) == pytest.approx(expected, abs=1e-12)


def test_an_evaluation_with_several_answers_to_each_prompt() -> None:
    rewards = [[1.0, 0.0, 0.5, 0.0], [0.0, 0.0, 0.0, -1.0], [1.0, 1.0, 1.0, 1.0]]
    groups = [group_with(*group) for group in rewards]
    strict = evaluation_metrics(groups, pass_at=[2])
    assert strict["eval/accuracy"] == pytest.approx(5 / 12)
    # Two of four draws: half of the pairs of the first group have its right answer.
    assert {name for name in strict if "pass@" in name} == {"eval/pass@2"}
    assert strict["eval/pass@2"] == pytest.approx((0.5 + 0 + 1) / 3)
    found = evaluation_metrics(groups, correct_reward=0.5)
    assert found["eval/accuracy"] == found["eval/avg@4"] == pytest.approx(6 / 12)
    assert found["eval/pass@1"] == pytest.approx(6 / 12)
    assert found["eval/pass@4"] == pytest.approx(2 / 3)
    assert found["eval/reward"] == pytest.approx(4.5 / 12)
    assert found["eval/response_length"] == 2


def test_weighted_rewards_that_are_all_1_count_as_correct() -> None:
    reward = 0.7 * 1.0 + 0.2 * 1.0 + 0.1 * 1.0
    assert reward < 1.0
    found = evaluation_metrics([group_with(reward, 0.999)], pass_at=[1])
    assert found["eval/accuracy"] == found["eval/pass@1"] == 0.5
    assert evaluation_metrics([group_with(0.0, -1e-6)], correct_reward=0.0)["eval/accuracy"] == 0.5


def test_a_greedy_evaluation_has_one_share() -> None:
    found = evaluation_metrics([group_with(1.0), group_with(0.0)])
    assert found == {"eval/accuracy": 0.5, "eval/reward": 0.5, "eval/response_length": 2.0}
    found = evaluation_metrics([group_with(1.0), group_with(0.0)], prefix="eval/aime")
    assert set(found) == {"eval/aime/accuracy", "eval/aime/reward", "eval/aime/response_length"}


def test_the_means_of_a_step() -> None:
    answers = [
        answer(1.5, length=1, terms={"math": 1.0, "long": 0.5}, metrics={"math_late": 1.0}),
        answer(-0.5, length=4, finish_reason="length", terms={"math": 0.0, "long": -0.5}),
    ]
    expected = {
        "rollout/reward": 0.5,
        "rollout/reward/math": 0.5,
        "rollout/reward/math_late": 0.5,
        "rollout/reward/long": 0.0,
        "rollout/response_length": 2.5,
        "rollout/prompt_length": 3.0,
        "rollout/truncated": 0.5,
    }
    assert response_metrics([RewardedGroup.of(answers)]) == expected
    # Groups of one: not every group has every metric.
    assert response_metrics([RewardedGroup.of([one]) for one in answers]) == expected


def test_a_row_is_all_that_is_known_of_a_response() -> None:
    sample = Sample(
        group_id=4,
        index=1,
        token_ids=(7, 7),
        versions=(2, 3),
        reward=1.0,
        reward_terms={"math": 1.0},
        reward_metrics={"math_seconds": 0.5},
    )
    rows = sample_rows(group_of([sample, sample], ["zwei\n\x00é", "x"], prompt="1+1=", reference=2))
    line, other = rows.splitlines()
    assert json.loads(other)["answer"] == "x"
    assert json.loads(line) == {
        "group": 4,
        "member": 1,
        "prompt": "1+1=",
        "answer": "zwei\n\x00é",
        "reference": "2",
        "reward": 1.0,
        "reward_terms": {"math": 1.0},
        "reward_metrics": {"math_seconds": 0.5},
        "num_tokens": 2,
        "finish_reason": "stop",
        "versions": [2, 3],
    }


def test_what_episodes_counted_becomes_means_over_all_responses() -> None:
    """A tool that an episode did not call counts as 0."""
    counted: list[dict[str, float]] = [{"turns": 3.0, "tool/sum_calls": 2.0}, {"turns": 1.0}, {"turns": 2.0}]
    first, second, third = (dataclasses.replace(answer(1.0), episode_metrics=metrics) for metrics in counted)
    found = response_metrics([RewardedGroup.of([first, second]), RewardedGroup.of([third])])
    assert found["rollout/turns"] == pytest.approx(2.0)
    assert found["rollout/tool/sum_calls"] == pytest.approx(2 / 3)


def test_an_evaluation_says_what_episodes_did_and_not_how_long_it_took() -> None:
    counted = {"turns": 3.0, "tool/sum_calls": 2.0, "tool/invalid_calls": 1.0, "tool/sum_seconds": 0.5, "branches": 1.0}
    first, second = (dataclasses.replace(answer(1.0), episode_metrics=metrics) for metrics in (counted, {"turns": 1.0}))
    found = evaluation_metrics([RewardedGroup.of([first]), RewardedGroup.of([second])], prefix="eval/val")
    assert {name for name in found if "turns" in name or "tool" in name or "branches" in name} == {
        "eval/val/turns",
        "eval/val/tool/sum_calls",
        "eval/val/tool/invalid_calls",
    }
    assert (found["eval/val/turns"], found["eval/val/tool/sum_calls"]) == (2.0, 1.0)
    assert found["eval/val/tool/invalid_calls"] == 0.5


def test_samples_of_episodes_hold_their_messages() -> None:
    group = group_of([Sample(token_ids=(7,)), Sample(token_ids=(8,))])
    said = ({"role": "user", "content": "?"},)
    rows = [json.loads(line) for line in sample_rows(dataclasses.replace(group, transcripts=(said, ()))).splitlines()]
    assert rows[0]["messages"] == list(said)
    assert "messages" not in rows[1]
