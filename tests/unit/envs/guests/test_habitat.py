"""The adapter for Habitat: episodes, actions, rewards and what is seen, with a fake and a transcript of its calls."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from guest_adapters import build, check_in_guest, fake, reset, run
from transcripts import Transcript

from rlinf.envs.guests.habitat import ACTIONS, SUCCESS_METRES

STOP, FORWARD, LEFT, RIGHT = np.eye(4)
NEAR = {"overrides": ["habitat.task.measurements.success.success_distance=0.6"]}


def env() -> Any:
    return fake("habitat").ENVS[-1]


@pytest.mark.usefixtures("fakes")
def test_a_seed_names_an_episode_of_the_data_set() -> None:
    rows = build("habitat", {})
    row = reset(rows, 12)
    assert row["task_descriptions"] == ["walk 3 m ahead"]
    assert row["main_images"].shape == (1, 2, 3, 3)
    assert row["depth_images"].shape == (1, 2, 3, 1)
    assert row["depth_images"].dtype == np.float32
    noise = env().noise
    assert reset(rows, 13)["task_descriptions"] == ["walk 4 m ahead"]
    assert env().noise != noise
    reset(rows, 12)
    assert env().noise == noise


@pytest.mark.usefixtures("fakes")
def test_the_greatest_number_of_an_action_is_executed() -> None:
    assert ACTIONS == ("stop", "move_forward", "turn_left", "turn_right")
    rows = build("habitat", {}, num_recorded=1)
    assert rows.spaces()["action_low"].tolist() == [-1] * 4
    reset(rows, 0)
    chunk = run(rows, [[LEFT, -RIGHT + 0.5 * FORWARD, [-0.4, -0.3, -0.2, -0.1], [0.2, 0.9, 0.1, 0.3]]])
    assert env().actions == ["turn_left", "move_forward", "turn_right", "move_forward"]
    assert [frame.max() for frame in chunk["frames"]["0"]] == [1, 2, 3, 4]
    np.testing.assert_allclose(chunk["obs"]["depth_images"], 0.05)
    rows.close()
    assert env().is_closed


@pytest.mark.usefixtures("fakes")
def test_the_way_to_the_goal_and_a_stop_near_it_are_rewarded() -> None:
    rows = build("habitat", NEAR)
    reset(rows, 0)
    chunk = run(rows, [[FORWARD, LEFT, FORWARD, STOP, FORWARD]])
    np.testing.assert_allclose(chunk["rewards"], [[0.24, -0.01, 0.24, 9.99, 0]], rtol=1e-5)
    assert chunk["executed"].tolist() == [[True] * 4 + [False]]
    assert chunk["terminations"].tolist() == chunk["successes"].tolist() == [[False] * 3 + [True, False]]
    reset(rows, 0)
    chunk = run(rows, [[FORWARD, STOP]])
    np.testing.assert_allclose(chunk["rewards"], [[0.24, -0.01]], rtol=1e-5)
    assert chunk["terminations"].tolist() == [[False, True]]
    assert not chunk["successes"].any()


@pytest.mark.usefixtures("fakes")
def test_rewards_can_be_others_and_weighted_by_the_path() -> None:
    rows = build("habitat", {**NEAR, "success_reward": 2.0, "step_reward": 0.0, "weight_by_path": True})
    reset(rows, 0)
    chunk = run(rows, [[*[FORWARD] * 5, STOP]])
    # 1 m is the way, and 1.25 m were walked.
    np.testing.assert_allclose(chunk["rewards"][0], [0.25] * 4 + [-0.25, 1.6], rtol=1e-5)


@pytest.mark.usefixtures("fakes")
def test_success_is_that_of_vln_ce_and_only_the_host_cuts_episodes_off() -> None:
    assert SUCCESS_METRES == 3
    rows = build("habitat", {"config_path": "mine.yaml", "overrides": ["habitat.dataset.split=val_unseen"]})
    assert env().config.path == "mine.yaml"
    assert env().config.settings == {
        "habitat.environment.max_episode_steps": "0",
        "habitat.environment.max_episode_seconds": "0",
        "habitat.task.measurements.success.success_distance": "3.0",
        "habitat.dataset.split": "val_unseen",
    }
    reset(rows, 1)
    assert run(rows, [[STOP]])["successes"].tolist() == [[True]]


@pytest.mark.usefixtures("fakes")
def test_after_a_stop_nothing_moves_where_terminations_are_ignored() -> None:
    rows = build("habitat", {"step_reward": -0.5})
    reset(rows, 1)
    chunk = run(rows, [[STOP, FORWARD, FORWARD]], rule=[50, True])
    assert env().actions == ["stop"]
    assert chunk["rewards"].tolist() == [[9.5, 0, 0]]
    assert chunk["successes"].tolist() == [[True] * 3]
    assert chunk["obs"]["main_images"].max() == 1


@pytest.mark.usefixtures("fakes")
def test_a_goal_without_a_way_leaves_rewards_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = build("habitat", {})
    reset(rows, 1)
    monkeypatch.setattr(env()._current, "goal", np.inf)
    lost = run(rows, [[FORWARD, FORWARD]])["rewards"]
    monkeypatch.setattr(env()._current, "goal", 2.0)
    found = run(rows, [[FORWARD, FORWARD]])["rewards"]
    np.testing.assert_allclose([lost, found], [[[-0.01, -0.01]], [[-0.01, 0.24]]], rtol=1e-5)


@pytest.mark.usefixtures("fakes")
def test_depth_can_be_left_out_and_unknown_options_are_named() -> None:
    assert reset(build("habitat", {"show_depth": False}), 0).keys() == {"main_images", "task_descriptions"}
    with pytest.raises(ValueError, match="adapter habitat has no split; it takes config_path, overrides, show_depth"):
        build("habitat", {"split": "val_unseen"})


def test_a_missing_package_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "habitat", None)
    with pytest.raises(ImportError, match=r"'habitat' cannot be imported by .*install habitat-sim"):
        build("habitat", {})


def test_the_calls_are_those_of_the_transcript(monkeypatch: pytest.MonkeyPatch) -> None:
    transcript = Transcript("habitat")
    transcript.install(monkeypatch)
    rows = build("habitat", {"overrides": ["habitat.dataset.split=val_unseen"]})
    row = reset(rows, 7)
    assert row["task_descriptions"] == ["Exit the bedroom and wait by the stairs."]
    assert row["main_images"][0].tolist() == [[[1, 2, 3], [4, 5, 6]]]
    np.testing.assert_allclose(row["depth_images"][0], [[[0.25], [0.5]]])
    chunk = run(rows, [[FORWARD, STOP]])
    np.testing.assert_allclose(chunk["rewards"], [[0.24, 9.99]], rtol=1e-5)
    assert chunk["terminations"].tolist() == chunk["successes"].tolist() == [[False, True]]
    rows.close()
    transcript.finish()


def test_it_conforms_in_a_guest(fakes: Path) -> None:
    check_in_guest(fakes, "habitat", {})
