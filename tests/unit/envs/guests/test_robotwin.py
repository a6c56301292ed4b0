"""The adapter for RoboTwin: settings, seeds, actions and what is seen, with a fake and a transcript of its calls."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from guest_adapters import build, check_in_guest, fake, reset, run, write_files
from transcripts import Transcript


@pytest.fixture
def params(fakes: Path) -> dict[str, Any]:
    """Return the options of the fake."""
    return {"source_path": str(fakes / "robotwin"), "task": "beat_block_hammer"}


def tasks() -> Any:
    return fake("robotwin").TASKS


def setups(task: Any) -> list[Any]:
    return [call for call in task.calls if call[0] in ("setup_demo", "close_env")]


def test_a_row_has_three_cameras_joints_and_the_description(params: dict[str, Any]) -> None:
    rows = build("robotwin", params)
    row = reset(rows, 5)
    assert row["main_images"].shape == (1, 3, 4, 3)
    assert row["wrist_images"].shape == (1, 2, 3, 4, 3)
    assert [int(row["main_images"].max()), *row["wrist_images"][0].max((1, 2, 3)).tolist()] == [0, 10, 20]
    assert row["states"].tolist() == [list(range(5, 19))]
    assert row["states"].dtype == np.float32
    assert row["task_descriptions"] == ["use the arm to grab the hammer and beat the block"]


def test_settings_are_those_of_the_published_evaluation(params: dict[str, Any]) -> None:
    build("robotwin", {**params, "eval_mode": True}).spaces()
    settings = tasks()[0].settings
    assert settings["render_freq"] == 0
    assert settings["eval_mode"] is True
    assert (settings["head_camera_h"], settings["head_camera_w"]) == (3, 4)
    assert settings["left_robot_file"] == settings["right_robot_file"] == "./assets/two-arms"
    assert settings["dual_arm_embodied"] is True
    assert settings["camera"]["collect_wrist_camera"] is True
    assert tasks()[0].step_lim is None
    pair = build("robotwin", {**params, "task_config": "demo_pair"})
    spaces = pair.spaces()
    assert spaces["action_low"].tolist() == [-np.inf] * 6 + [0] + [-np.inf] * 7 + [0]
    assert spaces["action_high"].tolist() == [np.inf] * 6 + [1] + [np.inf] * 7 + [1]
    settings = tasks()[1].settings
    assert settings["right_robot_file"] == "./assets/other-arms"
    assert (settings["dual_arm_embodied"], settings["embodiment_dis"]) == (False, 0.6)


def test_seeds_that_do_not_come_to_rest_stand_for_the_next_one(params: dict[str, Any]) -> None:
    rows = build("robotwin", {**params, "seeds": [7, 2], "instructions": ["hit it", "beat it", "strike"]})
    assert reset(rows, 4)["task_descriptions"] == ["beat it"]
    assert reset(rows, 3)["states"][0, 0] == 3
    assert setups(tasks()[0]) == [
        ("setup_demo", 0, 7, True),
        ("close_env", False),
        ("setup_demo", 0, 2, True),
        ("close_env", False),
        ("setup_demo", 0, 3, True),
    ]
    for _ in range(3):
        reset(rows, 0)
    assert [call[1] for call in setups(tasks()[0]) if call[0] == "close_env"] == [False] * 4 + [True]


def test_a_task_that_never_comes_to_rest_is_an_error(monkeypatch: pytest.MonkeyPatch, params: dict[str, Any]) -> None:
    rows = build("robotwin", params)
    unstable = fake("robotwin").UnStableError

    def fall(**settings: Any) -> None:
        del settings
        raise unstable("fell")

    monkeypatch.setattr(tasks()[0], "setup_demo", fall)
    with pytest.raises(ValueError, match="seeds 10 to 109: their objects do not come to rest"):
        reset(rows, 10)


def test_success_rewards_and_terminates_and_images_are_rendered_where_they_are_looked_at(
    params: dict[str, Any],
) -> None:
    rows = build("robotwin", params)
    reset(rows, 1)
    task = tasks()[0]
    looks = task.looks
    actions = np.arange(56, dtype=np.float32).reshape(1, 4, 14)
    chunk = run(rows, actions, observes=False)
    assert task.looks == looks + 1
    assert chunk["executed"].tolist() == [[True, True, True, False]]
    assert chunk["rewards"].tolist() == [[0, 0, 1, 0]]
    assert chunk["terminations"].tolist() == chunk["successes"].tolist() == [[False, False, True, False]]
    assert task.calls[-3:] == [("qpos", actions[0, step].tolist()) for step in range(3)]


def test_poses_of_end_effectors_are_actions_and_states(params: dict[str, Any]) -> None:
    rows = build("robotwin", {**params, "action_type": "ee"}, num_recorded=1)
    assert rows.spaces()["action_low"].tolist() == ([-np.inf] * 7 + [0]) * 2
    assert reset(rows, 3)["states"].tolist() == [[3] * 7 + [0.25] + [3] * 7 + [0.75]]
    chunk = run(rows, np.zeros((1, 1, 16)))
    assert tasks()[0].calls[-1] == ("ee", [0.0] * 16)
    assert [frame.max() for frame in chunk["frames"]["0"]] == [1]
    rows.close()
    assert tasks()[0].calls[-1] == ("close_env", True)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"config": "x"}, "adapter robotwin has no config; it takes source_path, task, task_config"),
        ({"action_type": "delta"}, "action_type: received 'delta'; allowed: qpos, ee"),
        ({"source_path": "/nowhere"}, "'/nowhere' has no envs/_base_task.py; clone https://github.com/RoboTwin"),
    ],
)
def test_what_does_not_fit_is_named(params: dict[str, Any], changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        build("robotwin", {**params, **changes})


def test_a_missing_package_is_named_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, params: dict[str, Any]
) -> None:
    monkeypatch.setitem(sys.modules, "envs._base_task", None)
    with pytest.raises(
        ImportError, match=rf"'envs.beat_block_hammer' cannot be imported by {sys.executable}.*requirem"
    ):
        build("robotwin", params)


def test_the_calls_are_those_of_the_transcript(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    transcript = Transcript("robotwin")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path, transcript.header["files"])
    transcript.constants["envs.CONFIGS_PATH"] = f"{tmp_path}/task_config/"
    transcript.install(monkeypatch)
    rows = build("robotwin", {"source_path": str(tmp_path), "task": "beat_block_hammer"})
    row = reset(rows, 100000)
    assert row["states"][0].tolist() == [0.125 * number for number in range(14)]
    assert row["main_images"].max() == 1
    assert row["wrist_images"][0].max((1, 2, 3)).tolist() == [2, 3]
    assert row["task_descriptions"] == ["there is a hammer and a block on the table, beat the block"]
    chunk = run(rows, [[np.full(14, 0.5), np.linspace(0, 1, 14)]])
    assert chunk["rewards"].tolist() == [[0, 1]]
    assert chunk["terminations"].tolist() == chunk["successes"].tolist() == [[False, True]]
    assert chunk["obs"]["main_images"].max() == 9
    rows.close()
    transcript.finish()


def test_it_conforms_in_a_guest(fakes: Path, params: dict[str, Any]) -> None:
    check_in_guest(fakes, "robotwin", params)
