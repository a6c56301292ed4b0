"""The weighted sum of rewards: of chunks of actions, and of responses."""

from __future__ import annotations

import asyncio
import dataclasses
import pickle
import threading
from typing import Any

import pytest
import torch
from reward_requests import request, step_result

from rlinf.algorithms.rewards import get_reward_class
from rlinf.algorithms.rewards.base import EmbodiedReward, MeasuredReward, TextReward, at_last_action
from rlinf.config.registries import rewards as registry
from rlinf.config.schema.reward import (
    ActionPenaltyConfig,
    EmbodiedRewardConfig,
    EnvRewardConfig,
    OverlongRewardConfig,
    RewardConfig,
    TextRewardConfig,
    TextRewardsConfig,
    VQARewardConfig,
)
from rlinf.data.messages.responses import RewardQuery
from rlinf.errors import RewardError
from rlinf.telemetry.metrics import MetricAccumulator
from rlinf.workers.reward.reward_worker import WeightedRewards
from tests.unit.data.messages.response_samples import Sample


def asked(*texts: str) -> Any:
    return [RewardQuery(prompt="?", response=text, reference="yes", num_tokens=len(text)) for text in texts]


@pytest.fixture
def custom(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes a recipe's term of a reward whose judging is the given function."""
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))

    def make(judge: Any, name: str = "custom") -> Any:
        reward = type("Custom", (TextReward,), {"__call__": lambda self, queries: judge(queries)})
        registry.register(name, reward, config=TextRewardConfig)
        return TextRewardConfig(reward_type=name)

    return make


@pytest.fixture
def weighted() -> Any:
    made = []

    def make(terms: Any, max_concurrency: int = 2) -> Any:
        made.append(WeightedRewards(TextRewardsConfig(rewards=terms, max_concurrency=max_concurrency)))
        return made[-1]

    yield make
    for rewards in made:
        rewards.close()


def test_each_term_is_kept_and_the_sum_is_weighted(weighted: Any) -> None:
    rewards = weighted(
        {
            "right": VQARewardConfig(reward_type="vqa", weight=3.0),
            "short": OverlongRewardConfig(reward_type="overlong", weight=0.5, max_tokens=4, buffer_tokens=4),
        }
    )
    scores = asyncio.run(rewards.score(asked("yes", "no")))
    assert scores == [{"right": 1.0, "short": -0.75}, {"right": 0.0, "short": -0.5}]
    assert [rewards.total(score) for score in scores] == [3.0 - 0.375, -0.25]
    assert asyncio.run(rewards.score([])) == []


def test_a_slow_reward_holds_up_neither_the_loop_nor_others(weighted: Any, custom: Any) -> None:
    """The slow reward ends only after a fast batch of another reward set, and the loop itself, have run."""
    go_on = threading.Event()
    slow = weighted({"slow": custom(lambda queries: [float(go_on.wait(60))] * len(queries), "slow")})
    fast = weighted({"fast": custom(lambda queries: [1.0] * len(queries), "fast")})

    async def run() -> Any:
        waiting = asyncio.create_task(slow.score(asked("a")))
        await asyncio.sleep(0)
        quick = await fast.score(asked("b"))
        assert not waiting.done()
        go_on.set()
        return quick, await waiting

    assert asyncio.run(run()) == ([{"fast": 1.0}], [{"slow": 1.0}])


def test_batches_run_side_by_side_up_to_the_bound(weighted: Any, custom: Any) -> None:
    running, most, lock, met = set(), [], threading.Lock(), threading.Barrier(2)

    def judge(queries: list[RewardQuery]) -> Any:
        with lock:
            running.add(threading.get_ident())
            most.append(len(running))
        met.wait(60)  # breaks unless two batches are judged at a time
        with lock:
            running.discard(threading.get_ident())
        return [0.0] * len(queries)

    rewards = weighted({"it": custom(judge)}, max_concurrency=2)

    async def run() -> Any:
        await asyncio.gather(*(rewards.score(asked("a")) for _ in range(6)))

    asyncio.run(run())
    assert max(most) == 2


@pytest.mark.parametrize(
    ("judge", "words"),
    [
        (lambda queries: [1.0], "1 rewards for 2 responses"),
        (lambda queries: [1.0, float("nan")], "nan for response 1 of 2"),
        (lambda queries: [float("inf"), 1.0], "inf for response 0 of 2"),
        (lambda queries: [1.0, dict[str, float]()["gone"]], "raised KeyError: 'gone'"),
    ],
)
def test_a_reward_that_fails_is_named_with_its_path(weighted: Any, custom: Any, judge: Any, words: str) -> None:
    rewards = weighted({"mine": custom(judge)})
    with pytest.raises(RewardError, match=words) as failure:
        asyncio.run(rewards.score(asked("a", "b")))
    assert str(failure.value).startswith("reward.rewards.mine (reward_type=custom)")


def test_rewards_made_before_one_that_cannot_be_are_closed(custom: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []
    term = custom(lambda queries: [0.0])
    monkeypatch.setattr(get_reward_class("custom"), "close", lambda self: closed.append(True))
    with pytest.raises(Exception, match="Unknown reward 'absent'"):
        WeightedRewards(TextRewardsConfig(rewards={"first": term, "second": TextRewardConfig(reward_type="absent")}))
    assert closed == [True]


def test_a_reward_whose_constructor_takes_other_arguments_is_named(
    custom: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    term = custom(lambda queries: [0.0])
    monkeypatch.setattr(get_reward_class("custom"), "__init__", lambda self, cfg, *, device: None)
    with pytest.raises(RewardError, match=r"rewards\.old \(reward_type=custom\) cannot be built.*\(cfg, context\)"):
        WeightedRewards(TextRewardsConfig(rewards={"old": term}))


def test_what_a_reward_measures_travels_with_the_response(weighted: Any, custom: Any) -> None:
    terms = {
        "late": custom(lambda queries: [MeasuredReward(0.5, {"seconds": 2.0}) for _ in queries], "late"),
        "plain": custom(lambda queries: [1.0 for _ in queries], "plain"),
    }
    rewards = weighted(terms)
    (earned,) = asyncio.run(rewards.score(asked("yes")))
    rewarded = pickle.loads(pickle.dumps(rewards.rewarded(Sample().response, earned)))
    assert rewarded.reward == 1.5
    assert rewarded.reward_terms == {"late": 0.5, "plain": 1.0}
    assert {type(value) for value in rewarded.reward_terms.values()} == {float}
    assert rewarded.reward_metrics == {"late_seconds": 2.0}
    assert pickle.loads(pickle.dumps(earned["late"])).metrics == {"seconds": 2.0}


def test_rewards_of_turns_are_part_of_the_total(weighted: Any, custom: Any) -> None:
    rewards = weighted({"plain": custom(lambda queries: [1.0 for _ in queries], "plain")})
    response = dataclasses.replace(Sample().response, turn_spans=((0, 1), (1, 2)), turn_rewards=(0.5, -0.25))
    rewarded = rewards.rewarded(response, {"plain": 1.0})
    assert (rewarded.reward, rewarded.outcome) == (1.25, 1.0)
    assert rewarded.reward_terms == {"plain": 1.0}


# -- chunks of actions -------------------------------------------------------------------------------------------------


def test_a_request_shows_the_state_in_which_an_episode_ended() -> None:
    asked = request()
    assert asked.obs["states"].squeeze(-1).tolist() == [1.0, 9.0, 3.0]
    assert asked.obs["task"] == ["a", "end", "c"]
    assert step_result().obs["states"].squeeze(-1).tolist() == [1.0, 2.0, 3.0]
    part = asked.rows(1, 3)
    assert part.obs["task"] == ["end", "c"]
    assert part.rewards.tolist() == [[2.0, 0.0], [0.0, 0.0]]


def test_the_score_of_a_chunk_goes_to_its_last_executed_action() -> None:
    scores = at_last_action(torch.tensor([5.0, 6.0, 7.0]), step_result().executed)
    assert scores.tolist() == [[0.0, 5.0], [6.0, 0.0], [0.0, 0.0]]


def test_rewards_are_weighted_masked_and_shown_one_by_one() -> None:
    terms = {
        "env": EnvRewardConfig(reward_type="env", weight=2.0),
        "effort": ActionPenaltyConfig(reward_type="action_penalty", weight=0.1),
        "end": EnvRewardConfig(reward_type="env", weight=10.0, reward_mode="terminal"),
    }
    metrics = MetricAccumulator()
    total = WeightedRewards(RewardConfig(rewards=terms)).score_chunk(request(), metrics)
    # env: 2 * own; effort: -0.1 * (1 + 9) / 2, then -0.1 * (0 + 4) / 2; end: 10 * own where an episode ended.
    torch.testing.assert_close(total, torch.tensor([[1.0 - 0.5, 2.0 - 0.2], [4.0 - 0.5 + 20.0, 0.0], [0.0, 0.0]]))
    shown = {name: metric.value() for name, metric in metrics.triples().items()}
    assert shown == pytest.approx(
        {"env/reward/env": 3.5 / 3, "env/reward/effort": -(5 + 2 + 5) / 3, "env/reward/end": 2.0 / 3}
    )


@pytest.mark.parametrize(
    ("values", "words"), [(torch.zeros(3), "one number for each action"), (torch.full((3, 2), torch.nan), "NaN")]
)
def test_a_reward_of_wrong_shape_or_that_is_no_number_is_named(
    monkeypatch: pytest.MonkeyPatch, values: torch.Tensor, words: str
) -> None:
    class Broken(EmbodiedReward):
        def __call__(self, request: Any) -> Any:
            return values

    monkeypatch.setattr("rlinf.workers.reward.reward_worker.get_reward_class", lambda name: Broken)
    rewards = WeightedRewards(RewardConfig(rewards={"mine": EmbodiedRewardConfig(reward_type="broken")}))
    with pytest.raises(RewardError, match=words) as failure:
        rewards.score_chunk(request(), MetricAccumulator())
    assert "reward.rewards.mine" in str(failure.value)
