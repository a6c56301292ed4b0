"""The number that a workflow returned."""

from __future__ import annotations

import pytest

from rlinf.algorithms.rewards import get_reward_class
from rlinf.config.schema.reward import WorkflowRewardConfig
from rlinf.data.messages.responses import RewardQuery
from rlinf.errors import RewardError

REWARD = get_reward_class("workflow")(WorkflowRewardConfig(reward_type="workflow"))


def test_the_outcome_is_the_reward() -> None:
    queries = [
        RewardQuery(prompt="?", response="x", outcome=0.25),
        RewardQuery(prompt="?", response="x", finish_reason="length"),
        RewardQuery(prompt="?", response="x", finish_reason="length", outcome=2.0),
    ]
    assert REWARD(queries) == [0.25, 0.0, 2.0]


def test_a_workflow_that_does_not_judge_is_an_error() -> None:
    with pytest.raises(RewardError, match="the workflow returned None"):
        REWARD([RewardQuery(prompt="?", response="x")])
