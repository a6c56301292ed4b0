"""Tasks of D4RL: names, environments, and scores against numbers that papers report."""

from __future__ import annotations

import pytest

from rlinf.envs.episodes import normalized_score
from rlinf.envs.simulators.d4rl.d4rl_tasks import (
    REFERENCE_RETURNS,
    environment_id,
    environment_module,
    reference_returns,
)
from rlinf.errors import ConfigError


@pytest.mark.parametrize(
    ("task_name", "total", "score"),
    # By hand: 100 * (return - random) / (expert - random), with d4rl/infos.py's references.
    [
        ("hopper-medium-v2", 3234.3, 100.0),
        ("hopper-medium-replay-v1", -20.272305, 0.0),
        ("halfcheetah-medium-v2", 5927.4105235, 50.0),
        ("walker2d-medium-expert-v0", 5051.3670992, 110.0),
        ("pen-human-v1", 1586.54795039, 50.0),
        ("antmaze-large-play-v2", 0.25, 25.0),
        ("kitchen-partial-v0", 3.0, 75.0),
    ],
)
def test_scores_lie_between_a_random_policy_and_an_expert(task_name: str, total: float, score: float) -> None:
    assert normalized_score(total, reference_returns(task_name)) == pytest.approx(score, abs=1e-6)


def test_references_are_ordered() -> None:
    assert all(low < high for low, high in REFERENCE_RETURNS.values())


def test_locomotion_has_environments_and_other_families_say_what_to_write() -> None:
    assert environment_id("walker2d-full-replay-v2") == "Walker2d-v4"
    assert environment_module("walker2d-full-replay-v2") is None
    assert environment_id("pen-human-v0") == "AdroitHandPen-v1"
    assert environment_module("pen-human-v0") == "gymnasium_robotics"
    with pytest.raises(ConfigError, match=r"reference_returns=\[0, 1\]"):
        environment_id("antmaze-umaze-v2")


@pytest.mark.parametrize("task_name", ["hoper-medium-v2", "hopper", "hopper-medium-v3", "Hopper-v4"])
def test_other_names_are_refused(task_name: str) -> None:
    with pytest.raises(ConfigError, match="has no task"):
        reference_returns(task_name)


def test_the_nearest_family_is_suggested() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'hopper'"):
        reference_returns("hoper-medium-v2")
