"""RECAP's returns, distributions and advantages, against sums written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rlinf.algorithms.frame_values.frame_objective import largest, projected
from rlinf.algorithms.frame_values.rank_correlation import rank_correlation
from rlinf.algorithms.frame_values.recap import RecapValue
from rlinf.config.schema.value import RecapValueLossConfig
from rlinf.data.episode_table import EpisodeTable
from rlinf.errors import DatasetError

BINS = 5


def table(lengths: list[int], succeeded: list[bool]) -> EpisodeTable:
    """Return episodes of one data set of rollouts."""
    length = np.array(lengths)
    return EpisodeTable(
        source=np.zeros(len(length), np.int64),
        start=length.cumsum() - length,
        length=length,
        succeeded=np.array(succeeded),
        is_demonstration=np.zeros(len(length), bool),
        solved=np.zeros(length.sum(), bool),
    )


def recap(**keys: Any) -> RecapValue:
    """Return the objective."""
    return RecapValue(RecapValueLossConfig(**keys), num_bins=BINS)


EPISODES = table([4, 3], [True, False])


def summed(rewards: list[float], gamma: float) -> float:
    """Return the discounted sum."""
    return sum(gamma**power * reward for power, reward in enumerate(rewards))


@pytest.mark.parametrize("gamma", [1.0, 0.5])
def test_returns_are_the_discounted_rewards_to_the_end(gamma: float) -> None:
    objective = recap(gamma=gamma, failure_reward=-10.0)
    rewards = ([-1.0, -1.0, -1.0, 0.0], [-1.0, -1.0, -10.0])
    expected = [summed(part[at:], gamma) for part in rewards for at in range(len(part))]
    assert objective.returns(EPISODES, *EPISODES.all_frames()) == pytest.approx(expected)


def test_targets_lie_between_the_lowest_and_the_highest_return() -> None:
    objective = recap(failure_reward=-10.0)
    scale = objective.fit(EPISODES)
    assert scale == (-12.0, 0.0)
    frames, targets = objective.targets(EPISODES, *EPISODES.all_frames(), scale, np.random.default_rng(0))
    assert frames.tolist() == [[0], [1], [2], [3], [0], [1], [2]]
    assert targets == pytest.approx([-3 / 12, -2 / 12, -1 / 12, 0.0, -1.0, -11 / 12, -10 / 12])


def test_a_target_keeps_its_place_where_the_highest_return_is_not_zero() -> None:
    objective, failures = recap(failure_reward=-10.0), table([3], [False])
    scale = objective.fit(failures)
    assert scale == (-12.0, -10.0)
    assert objective.targets(failures, *failures.all_frames(), scale, np.random.default_rng(0))[1] == pytest.approx(
        [-1.0, -0.5, 0.0]
    )


def test_equal_returns_teach_nothing() -> None:
    with pytest.raises(DatasetError, match="every frame has the return 0"):
        recap().fit(table([1, 1], [True, True]))


def test_a_projected_value_is_the_mean_of_its_two_bins() -> None:
    target = projected(torch.tensor([-1.0, -0.6, -0.25, 0.0, 3.0]), BINS, -1.0, 0.0)
    expected = [
        [1.0, 0.0, 0.0, 0.0, 0.0],
        [0.0, 0.4, 0.6, 0.0, 0.0],
        [0.0, 0.0, 0.0, 1.0, 0.0],
        [0.0, 0.0, 0.0, 0.0, 1.0],
        [0.0, 0.0, 0.0, 0.0, 1.0],
    ]
    torch.testing.assert_close(target, torch.tensor(expected), atol=1e-6, rtol=0)


def test_the_loss_is_least_at_the_target_and_the_prediction_is_the_mean() -> None:
    objective, targets = recap(), torch.tensor([-0.6, 0.0])
    wanted = projected(targets, BINS, -1.0, 0.0)
    right = (wanted + 1e-9).log().unsqueeze(1).expand(-1, 2, -1)
    assert objective.predict(right).tolist() == [pytest.approx([-0.6] * 2), pytest.approx([0.0] * 2, abs=1e-6)]
    uniform = torch.zeros(2, 2, BINS)
    torch.testing.assert_close(objective.losses(uniform, targets), torch.full((2, 2), float(np.log(BINS))))
    entropy = -(wanted * (wanted + 1e-9).log()).sum(-1)
    torch.testing.assert_close(objective.losses(right, targets)[:, 0], entropy, atol=1e-5, rtol=0)


@pytest.mark.parametrize("gamma", [1.0, 0.5])
def test_advantages_take_some_steps_as_they_were_and_the_models_estimate_behind_them(gamma: float) -> None:
    objective = recap(gamma=gamma, failure_reward=-10.0, advantage_lookahead_step=2)
    low, high = -12.0, -0.5
    generator = np.random.default_rng(0)
    values = generator.uniform(-1.0, 0.0, (EPISODES.num_frames, 3))
    found, _ = objective.advantages(EPISODES, values, (low, high))
    expected = []
    for rewards, first in (([-1.0, -1.0, -1.0, 0.0], 0), ([-1.0, -1.0, -10.0], 4)):
        estimates = values[first : first + len(rewards)].mean(1) * (high - low) + high
        for at in range(len(rewards)):
            ahead = at + 2
            behind = gamma**2 * estimates[ahead] if ahead < len(rewards) else 0.0
            expected.append((summed(rewards[at:ahead], gamma) + behind - estimates[at]) / (high - low))
    assert found == pytest.approx(expected)


def test_a_share_of_all_frames_is_positive() -> None:
    long = table([50, 50], [True, False])
    values = np.random.default_rng(0).uniform(-1.0, 0.0, (100, 1))
    advantages, positive = recap(positive_quantile=0.3).advantages(long, values, (-349.0, 0.0))
    assert positive.sum() == 30
    assert advantages[positive].min() > advantages[~positive].max()


def test_the_largest_scores_include_the_quantile_itself() -> None:
    assert largest(np.array([0.0, 1.0, 2.0, 3.0, 4.0]), 0.25).tolist() == [False, False, False, True, True]
    assert largest(np.array([1.0, 1.0]), 0.3).all()


def test_frames_are_sampled_by_the_weights_of_their_data_sets_and_then_alike() -> None:
    length = np.array([30, 10, 40])
    episodes = EpisodeTable(
        source=np.array([0, 0, 1]),
        start=np.array([0, 30, 0]),
        length=length,
        succeeded=np.ones(3, bool),
        is_demonstration=np.ones(3, bool),
        solved=np.arange(80) % 7 >= 5,
    )
    chosen, places = episodes.sample(40_000, np.array([3.0, 1.0]), np.random.default_rng(0))
    shares = np.bincount(chosen, minlength=3) / 40_000
    assert shares == pytest.approx([0.75 * 0.75, 0.75 * 0.25, 0.25], abs=0.02)
    assert np.bincount(places[chosen == 1], minlength=10) / (chosen == 1).sum() == pytest.approx([0.1] * 10, abs=0.02)
    pairs = episodes.sample(2_000, np.array([1.0, 1.0]), np.random.default_rng(0), num_frames=2)[1]
    assert pairs.max() == 38
    successes = episodes.select(np.array([False, True, True]))
    assert successes.length.tolist() == [10, 40]
    assert successes.start.tolist() == [30, 0]
    assert successes.solved.tolist() == episodes.solved[30:].tolist()
    both = EpisodeTable.concat([episodes, successes])
    assert both.length.tolist() == [30, 10, 40, 10, 40]
    assert both.source.tolist() == [0, 0, 1, 0, 1]
    assert both.solved.tolist() == [*episodes.solved, *episodes.solved[30:]]


def test_ranks_of_equal_values_are_shared() -> None:
    first = np.array([1.0, 2.0, 3.0, 4.0])
    assert rank_correlation(first, np.array([10.0, 20.0, 30.0, 100.0])) == pytest.approx(1.0)
    assert rank_correlation(first, -first) == pytest.approx(-1.0)
    # Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4.
    assert rank_correlation(first, np.array([0.0, 1.0, 1.0, 5.0])) == pytest.approx(4.5 / np.sqrt(5.0 * 4.5))
    assert rank_correlation(first, np.zeros(4)) == 0.0
