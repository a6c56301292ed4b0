"""The adapter for RoboCasa: actions, what is seen and success, with a fake and a transcript of its calls."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from guest_adapters import build, check_in_guest, fake, reset, run
from transcripts import Transcript

from rlinf.envs.guests.robocasa import ACTION_PARTS

PARAMS: dict[str, Any] = {"task": "CloseDrawer", "image_size": 4}


def kitchens() -> Any:
    return fake("robocasa").KITCHENS


@pytest.mark.usefixtures("fakes")
def test_a_row_has_images_the_right_way_up_states_and_the_sentence() -> None:
    rows = build("robocasa", PARAMS)
    row = reset(rows, 3)
    assert row.keys() == {"states", "main_images", "wrist_images", "task_descriptions"}
    # The fake's rows count from below.
    assert row["main_images"][0, :, 0, 1].tolist() == [30, 20, 10, 0]
    assert row["wrist_images"][0, :, 0, 1].tolist() == [31, 21, 11, 1]
    assert row["states"].shape == (1, 25)
    assert row["states"].dtype == np.float32
    assert row["states"][0, 11:14].tolist() == [1, 2, 3]
    assert row["task_descriptions"] == [f"close the drawer of kitchen {kitchens()[0].layout}"]


@pytest.mark.usefixtures("fakes")
def test_a_seed_names_the_kitchen() -> None:
    rows = build("robocasa", PARAMS, num_envs=2)
    first = reset(rows, 3, 4)
    assert first["task_descriptions"][0] != first["task_descriptions"][1]
    assert reset(rows, 4, 3)["task_descriptions"] == first["task_descriptions"][::-1]


@pytest.mark.usefixtures("fakes")
def test_an_action_has_the_parts_of_the_recipe_and_the_rest_does_not_move() -> None:
    assert [ACTION_PARTS[part] for part in ("gripper", "base", "torso")] == [(6, 7), (7, 10), (10, 11)]
    whole = build("robocasa", PARAMS)
    reset(whole, 0)
    run(whole, [[np.arange(12) / 12]])
    np.testing.assert_allclose(kitchens()[0].actions[0], np.arange(12) / 12, rtol=1e-6)
    parts = build("robocasa", {**PARAMS, "action_parts": ["gripper", "arm"]})
    assert parts.spaces()["action_low"].tolist() == [-1] * 7
    run(parts, [[np.arange(7) / 8]])
    assert kitchens()[1].actions[0].tolist() == [*(np.arange(1, 7) / 8), 0, 0, 0, 0, 0, -1]


@pytest.mark.usefixtures("fakes")
@pytest.mark.parametrize(("said", "taken"), [(0.0, -1), (0.4999, -1), (0.5, 1), (1.0, 1)])
def test_gripper_and_mode_may_be_said_by_0_and_1(said: float, taken: float) -> None:
    rows = build("robocasa", {**PARAMS, "action_parts": ["base_mode", "torso", "gripper"], "unit_switches": True})
    assert rows.spaces()["action_low"].tolist() == [0, -1, 0]
    assert rows.spaces()["action_high"].tolist() == [1, 1, 1]
    reset(rows, 0)
    run(rows, [[np.array([said, 0.25, said])]])
    assert kitchens()[0].actions[0].tolist() == [0] * 6 + [taken] + [0] * 3 + [0.25, taken]


@pytest.mark.usefixtures("fakes")
def test_success_rewards_and_terminates_and_a_video_shows_the_main_camera() -> None:
    rows = build("robocasa", PARAMS, num_recorded=1)
    reset(rows, 3)
    wanted = kitchens()[0].wanted
    chunk = run(rows, np.zeros((1, 6, 12)))
    assert chunk["executed"][0].tolist() == [step < wanted for step in range(6)]
    assert chunk["rewards"][0].tolist() == [float(step == wanted - 1) for step in range(6)]
    assert chunk["terminations"][0].tolist() == chunk["successes"][0].tolist() == [r > 0 for r in chunk["rewards"][0]]
    assert [frame[0, 0].tolist() for frame in chunk["frames"]["0"]] == [[step + 1, 30, 30] for step in range(wanted)]
    rows.close()
    assert kitchens()[0].is_closed


@pytest.mark.usefixtures("fakes")
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"layouts": 3}, "adapter robocasa has no layouts; it takes task, robot, split"),
        ({"action_parts": ["leg"]}, "action_parts: there is no 'leg'; there are arm, gripper, base, torso, base_mode"),
        ({"states": ["robot0_leg"]}, "states: there is no 'robot0_leg'; there are robot0_eef_pos"),
        ({"robot": "GR1"}, r"robot: its action is split as \{'right': \(0, 6\), 'right_gripper': \(6, 7\)\}"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        reset(build("robocasa", {**PARAMS, **changes}), 0)


@pytest.mark.usefixtures("fakes")
def test_the_scene_and_the_cameras_are_those_of_the_recipe() -> None:
    scene = {"split": "target", "obj_instance_split": "A", "layout_ids": [1, 2], "style_ids": -1}
    reset(build("robocasa", {**PARAMS, **scene, "cameras": {"main_images": "robot0_agentview_right"}}), 0)
    assert kitchens()[0].scene == ("target", "A", [1, 2], -1)
    assert kitchens()[0].cameras == ["robot0_agentview_right"]


def test_a_missing_package_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "robocasa", None)
    with pytest.raises(ImportError, match=rf"'robocasa' cannot be imported by {sys.executable}.*download_kitchen_ass"):
        build("robocasa", PARAMS)


def test_the_calls_are_those_of_the_transcript(monkeypatch: pytest.MonkeyPatch) -> None:
    transcript = Transcript("robocasa")
    transcript.install(monkeypatch)
    rows = build("robocasa", {"task": "CloseDrawer", "image_size": 2, "split": "pretrain"}, num_recorded=1)
    row = reset(rows, 7)
    assert row["states"][0].tolist() == list(range(25))
    assert row["main_images"][0, :, :, 0].tolist() == [[3, 4], [1, 2]]
    assert row["wrist_images"].max() == 5
    assert row["task_descriptions"] == ["close the left drawer"]
    chunk = run(rows, [[np.linspace(-1, 1, 12), np.zeros(12)]])
    assert chunk["rewards"].tolist() == [[0, 1]]
    assert chunk["terminations"].tolist() == chunk["successes"].tolist() == [[False, True]]
    assert not chunk["truncations"].any()
    rows.close()
    transcript.finish()


def test_it_conforms_in_a_guest(fakes: Path) -> None:
    check_in_guest(fakes, "robocasa", PARAMS)
