"""Implicit Q-learning: target critics follow, and rewards are discounted within chunks."""

from dataclasses import replace

import pytest
import torch
from data_toys import (
    CHUNK,
    DATA,
    LOSSES,
    make_episodes,
    make_learner,
    weights,
)


def test_target_critics_follow_the_critics_by_tau() -> None:
    learner = make_learner("offline_iql")
    learner.algorithm = replace(learner.algorithm, update_epoch=1)
    before = weights(learner)
    learner.update(1)
    after = weights(learner)
    for name in (name for name in after if name.startswith("critic.")):
        torch.testing.assert_close(after[f"target_{name}"], 0.9 * before[f"target_{name}"] + 0.1 * after[name])


def test_recorded_rewards_are_scaled_and_discounted_within_a_chunk() -> None:
    episodes = make_episodes()
    loss = LOSSES["offline_iql"]
    rewards = make_learner("offline_iql").stored.contents().rewards
    first = episodes[0].rewards[:CHUNK] * loss.gamma ** torch.arange(CHUNK)
    assert loss.gamma < 1
    assert float(rewards[0]) == pytest.approx(float(DATA.reward_coef * first.sum()), rel=1e-5)
