"""How many episodes an evaluation counts, and which ones go on in the next rollout epoch."""

from __future__ import annotations

from typing import Any

import pytest

from rlinf.config.schema.env import ActionRepeatConfig, GymnasiumEnvConfig, NoEnvConfig


def make(**keys: Any) -> GymnasiumEnvConfig:
    sizes = {"total_num_envs": 2, "max_episode_steps": 10, "max_steps_per_rollout_epoch": 40}
    return GymnasiumEnvConfig(env_type="gymnasium", init_params={}, **{**sizes, **keys})


@pytest.mark.parametrize(
    ("keys", "chunk", "expected"),
    [
        ({}, 1, 4),
        ({}, 4, 3),  # 10 steps are three chunks of 4, and there are 10 chunks
        ({"max_steps_per_rollout_epoch": 8}, 1, 1),
        ({"auto_reset": False}, 1, 1),
        ({"wrappers": [ActionRepeatConfig(name="action_repeat", num_repeats=5)]}, 1, 20),
    ],
)
def test_only_episodes_that_end_however_long_they_last_are_counted(
    keys: dict[str, Any], chunk: int, expected: int
) -> None:
    assert make(**keys).num_counted_episodes(chunk) == expected


def test_start_states_are_counted_by_group_epoch_and_episode() -> None:
    cfg = make(total_num_envs=9, group_size=3, rollout_epoch=5)
    assert (cfg.num_groups, cfg.num_ordered_starts(1), cfg.num_ordered_starts(4)) == (3, 60, 45)
    assert make(total_num_envs=10, group_size=3).num_groups == 4


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"auto_reset": True}, True),
        ({"auto_reset": False}, False),
        ({"auto_reset": True, "use_fixed_reset_state_ids": True}, False),
        ({"auto_reset": True, "use_ordered_reset_state_ids": True}, False),
    ],
)
def test_episodes_go_on_unless_their_initial_states_are_chosen(keys: dict[str, Any], expected: bool) -> None:
    assert make(**keys).carries_episodes == expected


def test_without_environments_no_episode_goes_on() -> None:
    sizes = {"total_num_envs": 1, "max_episode_steps": 1, "max_steps_per_rollout_epoch": 1}
    assert not NoEnvConfig(env_type="none", **sizes).carries_episodes  # type: ignore[arg-type]
