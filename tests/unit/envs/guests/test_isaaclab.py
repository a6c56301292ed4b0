"""The adapter for Isaac Lab: resets, ends, actions and what is seen, with a fake and a transcript of its calls."""

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from guest_adapters import build, check_in_guest, fake, reset, run
from transcripts import Transcript

from rlinf.envs.guests.isaaclab import rotation_vectors

PARAMS: dict[str, Any] = {"task": "Fake-Stack-v0", "device": "cpu", "image_size": 3, "task_description": "stack it"}


@pytest.fixture(autouse=True)
def tasks() -> Iterator[None]:
    """Leave no task of the fake at Gymnasium."""
    yield
    for name in ("Fake-Stack-v0", "Fake-Direct-v0"):
        gymnasium.registry.pop(name, None)


def lab() -> Any:
    return fake("isaaclab").LABS[-1]


@pytest.mark.usefixtures("fakes")
def test_the_simulator_starts_before_its_tasks_with_the_sizes_of_the_recipe() -> None:
    rows = build("isaaclab", PARAMS, num_envs=2)
    (app,) = fake("isaaclab").APPS
    assert app.settings == {"headless": True, "enable_cameras": True, "device": "cpu"}
    assert (lab().num_envs, lab().cfg.seed, lab().cfg.scene.wrist_cam.width) == (2, 0, 3)
    rows.close()
    assert lab().is_closed
    assert app.is_closed


@pytest.mark.usefixtures("fakes")
def test_a_row_has_images_poses_and_the_sentence() -> None:
    rows = build("isaaclab", PARAMS, num_envs=2)
    row = reset(rows, 3, 4)
    assert row["main_images"].shape == row["wrist_images"].shape == (2, 3, 3, 3)
    assert row["wrist_images"].dtype == np.uint8
    start = lab().start.numpy()
    expected = np.stack([start, start, start, 0 * start, 0 * start, start, 0 * start, 0 * start], 1)
    np.testing.assert_allclose(row["states"], expected, atol=1e-6)
    assert row["states"].dtype == np.float32
    assert row["task_descriptions"] == ["stack it"] * 2
    assert rows.spaces()["action_low"].tolist() == [-np.inf] * 7


@pytest.mark.usefixtures("fakes")
def test_a_seed_names_the_start_whatever_row_and_whichever_others() -> None:
    rows = build("isaaclab", PARAMS, num_envs=3)
    first = reset(rows, 3, 4, 3)["states"][:, 0]
    assert first[0] == first[2] != first[1]
    again = rows.reset(np.array([2, 1]), np.array([4, 3]))["obs"]["states"][:, 0]
    assert again.tolist() == [first[1], first[0]]


@pytest.mark.usefixtures("fakes")
def test_ended_rows_stay_until_the_host_resets_them() -> None:
    rows = build("isaaclab", PARAMS, num_envs=2, num_recorded=2)
    reset(rows, 3, 4)
    wanted, num_resets = lab().wanted.tolist(), lab().num_resets
    chunk = run(rows, np.zeros((2, 5, 7)))
    assert lab().num_resets == num_resets
    for row in range(2):
        assert chunk["executed"][row].tolist() == [step < wanted[row] for step in range(5)]
        assert chunk["terminations"][row].tolist() == [step == wanted[row] - 1 for step in range(5)]
        # Every step has its own observation, and the last one is that of the end.
        assert [seen["main_images"].max() for seen in chunk["observations"][str(row)]] == [*range(1, wanted[row] + 1)]
        assert [frame.max() for frame in chunk["frames"][str(row)]] == [*range(1, wanted[row] + 1)]
        assert chunk["final_obs"]["states"][row, -1] == wanted[row]
    np.testing.assert_allclose(chunk["rewards"][:, 0], lab().start.numpy() + 1)
    assert chunk["successes"].tolist() == chunk["terminations"].tolist()
    # The term still says how the last episode ended.
    reset(rows, 3, 4)
    assert lab().termination_manager.get_term("success").tolist() == [True, True]
    assert not run(rows, np.zeros((2, 1, 7)))["successes"].any()


@pytest.mark.usefixtures("fakes")
def test_other_ends_are_no_success_and_time_limits_truncate() -> None:
    rows = build("isaaclab", PARAMS, num_envs=2)
    reset(rows, 3, 4)
    lab().wanted[:] = 99
    actions = np.zeros((2, 7, 7))
    actions[0, 1, 0] = 9
    chunk = run(rows, actions)
    assert chunk["terminations"].nonzero()[1].tolist() == [1]
    assert not chunk["successes"].any()
    assert np.argwhere(chunk["truncations"]).tolist() == [[1, 5]]
    assert chunk["reports_success"] is True


@pytest.mark.usefixtures("fakes")
def test_rows_at_rest_get_zeros() -> None:
    rows = build("isaaclab", {**PARAMS, "success_term": None}, num_envs=2)
    reset(rows, 3, 4)
    chunk = run(rows, np.full((2, 1, 7), 0.5), active=np.array([False, True]))
    assert lab().actions[-1].tolist() == [[0] * 7, [0.5] * 7]
    assert chunk["reports_success"] is False


@pytest.mark.usefixtures("fakes")
def test_observations_can_be_others() -> None:
    plain = build("isaaclab", {**PARAMS, "states": ["eef_quat"], "axis_angle": [], "cameras": {}})
    row = reset(plain, 3)
    assert row.keys() == {"states", "task_descriptions"}
    np.testing.assert_allclose(row["states"][0], lab().buffers["eef_quat"][0].numpy())
    assert fake("isaaclab").APPS[-1].settings["enable_cameras"] is False
    joined = build("isaaclab", {**PARAMS, "group": "joined", "cameras": {}, "task_description": ""})
    assert reset(joined, 3).keys() == {"states"}
    assert reset(joined, 3)["states"].shape == (1, 5)


@pytest.mark.usefixtures("fakes")
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"seed": 3}, "adapter isaaclab has no seed; it takes task, task_description"),
        ({"success_term": "done"}, "success_term: the task has no 'done'; it has time_out, dropped, success"),
        ({"task": "Fake-Direct-v0"}, "task: DirectLab is no manager-based environment"),
        ({"group": "critic"}, "group: there is no 'critic'; there are policy, subtask_terms, joined"),
        ({"cameras": {"main_images": "eef_pos"}, "image_size": None}, r"uint8 \[H, W, 3\]; received float32"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        reset(build("isaaclab", {**PARAMS, **changes}), 0)


def test_rotations_are_axis_times_angle() -> None:
    half = math.sqrt(0.5)
    found = rotation_vectors(np.array([[1, 0, 0, 0], [half, half, 0, 0], [-half, 0, 0, half], [0, 0, 1, 0]]))
    expected = [[0, 0, 0], [math.pi / 2, 0, 0], [0, 0, -math.pi / 2], [0, math.pi, 0]]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_a_missing_package_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setitem(sys.modules, "isaaclab", None)
    with pytest.raises(ImportError, match=r"'isaaclab.app' cannot be imported by .*install Isaac Sim and Isaac Lab"):
        build("isaaclab", PARAMS)


def test_the_calls_are_those_of_the_transcript(monkeypatch: pytest.MonkeyPatch) -> None:
    transcript = Transcript("isaaclab")
    transcript.install(monkeypatch)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    task = "Isaac-Stack-Cube-Franka-IK-Rel-Visuomotor-v0"
    rows = build("isaaclab", {"task": task, "device": "cpu", "image_size": 2}, num_envs=2)
    row = reset(rows, 7, 8)
    np.testing.assert_allclose(row["states"][1], [0.4, 0.5, 0.6, 0, 0, math.pi / 2, 0.04, 0.03], atol=1e-6)
    assert row["main_images"][:, 0, 0, 0].tolist() == [1, 2]
    assert row["wrist_images"][:, 0, 0, 0].tolist() == [3, 4]
    chunk = run(rows, np.full((2, 1, 7), 0.25))
    assert chunk["rewards"].tolist() == [[0.5], [1.5]]
    assert chunk["terminations"].tolist() == chunk["successes"].tolist() == [[False], [True]]
    assert chunk["truncations"].tolist() == [[True], [False]]
    rows.close()
    transcript.finish()


def test_it_conforms_in_a_guest(fakes: Path) -> None:
    check_in_guest(fakes, "isaaclab", PARAMS)
