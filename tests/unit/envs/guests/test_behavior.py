"""The adapter for BEHAVIOR: its configuration, actions and what is seen, with a fake and transcripts of its calls."""

import gc
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from guest_adapters import build, check_in_guest, fake, reset, run
from transcripts import Transcript

PARAMS: dict[str, Any] = {
    "activity_name": "turning_on_radio",
    "scene_model": "house_double_floor_lower",
    "image_size": 4,
}


def environment() -> Any:
    return fake("omnigibson").ENVIRONMENTS[-1]


@pytest.mark.usefixtures("fakes")
def test_the_configuration_is_the_robots_with_the_activity_of_the_recipe() -> None:
    build("behavior", {**PARAMS, "activity_instance_id": 3, "load_room_types": ["kitchen"]})
    assert gc.isenabled()
    cfg = environment().config
    assert cfg["env"]["action_frequency"] == 30
    assert not cfg["env"]["automatic_reset"]
    assert not cfg["env"]["flatten_obs_space"]
    assert not cfg["env"]["flatten_action_space"]
    assert (cfg["scene"]["scene_model"], cfg["scene"]["load_room_types"]) == ("house_double_floor_lower", ["kitchen"])
    task = {
        key: cfg["task"][key] for key in ("type", "activity_name", "activity_definition_id", "activity_instance_id")
    }
    assert task == {
        "type": "BehaviorTask",
        "activity_name": "turning_on_radio",
        "activity_definition_id": 0,
        "activity_instance_id": 3,
    }
    assert cfg["task"]["include_obs"] is cfg["task"]["online_object_sampling"] is False
    assert cfg["task"]["termination_config"]["max_steps"] >= 10**9
    assert cfg["robots"][0]["proprio_obs"] == ["joint_qpos", "eef_left_pos"]


@pytest.mark.usefixtures("fakes")
@pytest.mark.parametrize("lists", [False, True])
def test_a_row_has_three_cameras_what_the_robot_feels_and_the_sentence(lists: bool) -> None:
    fake("omnigibson").answers_lists = lists
    rows = build("behavior", PARAMS, num_recorded=1)
    row = reset(rows, 3)
    assert row["main_images"].shape == (1, 4, 4, 3)
    assert row["main_images"].max() == 20
    assert row["wrist_images"].shape == (1, 2, 4, 4, 3)
    assert row["wrist_images"][0].max((1, 2, 3)).tolist() == [0, 10]
    assert row["states"].tolist() == [[0.25, 0, 1, 2, 3]]
    assert row["states"].dtype == np.float32
    assert row["task_descriptions"] == ["turning on radio"]
    chunk = run(rows, np.zeros((1, 5, 23)))
    assert chunk["executed"].tolist() == [[True] * 4 + [False]]
    assert chunk["rewards"].tolist() == [[0.5, 1, 1.5, 2, 0]]
    assert chunk["terminations"].tolist() == chunk["successes"].tolist() == [[False] * 3 + [True, False]]
    assert not chunk["truncations"].any()
    assert [frame.max() for frame in chunk["frames"]["0"]] == [21, 22, 23, 24]
    rows.close()
    assert environment().is_closed


@pytest.mark.usefixtures("fakes")
def test_actions_are_23_numbers_in_the_bounds_of_the_controllers() -> None:
    rows = build("behavior", PARAMS)
    spaces = rows.spaces()
    np.testing.assert_allclose(spaces["action_low"], np.linspace(-2, -1, 23), rtol=1e-6)
    np.testing.assert_allclose(spaces["action_high"], np.linspace(2, 1, 23), rtol=1e-6)
    chunk = run(rows, [[np.arange(23) / 8, np.full(23, 3.0), np.zeros(23)]])
    assert environment().actions[0].tolist() == (np.arange(23) / 8).tolist()
    assert chunk["terminations"].tolist() == [[False, True, False]]
    assert not chunk["successes"].any()


@pytest.mark.usefixtures("fakes")
def test_a_seed_seeds_what_the_simulator_samples() -> None:
    rows = build("behavior", PARAMS)
    drawn = []
    for seed in (3, 4, 3):
        reset(rows, seed)
        drawn.append(environment().drawn)
    assert drawn[0] == drawn[2]
    assert all(first != second for first, second in zip(*drawn[:2], strict=True))


@pytest.mark.usefixtures("fakes")
def test_a_configuration_and_what_is_felt_can_be_others(tmp_path: Path) -> None:
    own = {"env": {}, "scene": {}, "task": {}, "robots": [{"name": "mine"}]}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(own))
    params = {**PARAMS, "config": str(tmp_path / "own.yaml"), "proprio": ["eef_left_pos"], "image_size": None}
    row = reset(build("behavior", {**params, "task_description": "Turn on the radio."}), 0)
    assert row["states"].tolist() == [[1, 2, 3]]
    assert row["main_images"].shape == (1, 6, 6, 3)
    assert row["task_descriptions"] == ["Turn on the radio."]


@pytest.mark.usefixtures("fakes")
def test_a_guest_has_one_environment() -> None:
    with pytest.raises(ValueError, match=r"one simulator a process; set env\.\*\.num_env_processes"):
        build("behavior", PARAMS, num_envs=2)


@pytest.mark.usefixtures("fakes")
def test_unknown_and_missing_options_are_named() -> None:
    with pytest.raises(ValueError, match="adapter behavior has no robot and requires scene_model; it takes activity_n"):
        build("behavior", {"activity_name": "turning_on_radio", "robot": "R1"})


@pytest.mark.usefixtures("fakes")
def test_a_camera_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake("omnigibson"), "CAMERAS", ("left_realsense_link", "eyes"))
    with pytest.raises(
        ValueError, match="one camera at zed_link; observations are robot_r1:left_realsense_link:Camera:0"
    ):
        reset(build("behavior", PARAMS), 0)


def test_a_missing_package_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "omnigibson", None)
    with pytest.raises(ImportError, match=r"'omnigibson' cannot be imported by .*StanfordVL/BEHAVIOR-1K"):
        build("behavior", PARAMS)


@pytest.mark.parametrize("name", ["behavior", "behavior_lists"])
def test_the_calls_are_those_of_the_transcript(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    transcript = Transcript(name)
    (tmp_path / "r1pro_behavior.yaml").write_text(yaml.safe_dump(transcript.header["config"]))
    transcript.constants["omnigibson.example_config_path"] = str(tmp_path)
    transcript.install(monkeypatch)
    rows = build("behavior", {key: value for key, value in PARAMS.items() if key != "image_size"})
    row = reset(rows, 7)
    assert row["states"].tolist() == [[number / 8 for number in range(256)]]
    assert row["main_images"].tolist() == [[[[1, 2, 3], [4, 5, 6]]]]
    assert row["wrist_images"][0].max((1, 2, 3)).tolist() == [7, 8]
    chunk = run(rows, [[np.full(23, 0.25), np.zeros(23)]])
    assert chunk["rewards"].tolist() == [[0, 0.5]]
    assert chunk["terminations"].tolist() == chunk["successes"].tolist() == [[False, True]]
    rows.close()
    transcript.finish()


def test_it_conforms_in_a_guest(fakes: Path) -> None:
    check_in_guest(fakes, "behavior", PARAMS, num_envs=1, varied=False)
