"""Statistics in published forms normalise as published code does, and what does not fit is refused with the remedy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlinf.errors import ConfigError
from rlinf.models.vla.norm_statistics import Scheme, Statistics, read_statistics

ACTION = {
    "q01": [-0.5, 0.0, 0.2],
    "q99": [0.5, 2.0, 0.2],
    "min": [-1.0, -1.0, -1.0],
    "max": [1.0, 3.0, 1.0],
    "mean": [0.0, 1.0, 2.0],
    "std": [1.0, 0.5, 2.0],
    "mask": [True, True, False],
}


def folder_with(folder: Path, file: str, content: dict[str, Any]) -> Path:
    (folder / file).write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize(
    ("file", "wrap"),
    [("config.json", lambda known: {"norm_stats": known}), ("dataset_statistics.json", lambda known: known)],
)
def test_both_files_are_read(file: str, wrap: Any, tmp_path: Path) -> None:
    folder_with(tmp_path, file, wrap({"mine": {"action": ACTION}}))
    normalizer = Statistics.of_folder(tmp_path, None).normalizer("action", "bounds_q99", 3)
    assert normalizer.low.tolist() == pytest.approx(ACTION["q01"])


@pytest.mark.parametrize("scheme", ["bounds_q99", "bounds"])
def test_bounds_are_the_published_formulas(scheme: Scheme, tmp_path: Path) -> None:
    folder_with(tmp_path, "dataset_statistics.json", {"mine": {"action": ACTION}})
    normalizer = Statistics.of_folder(tmp_path, "mine").normalizer("action", scheme, 3)
    low, high = (np.array(ACTION[name]) for name in (("q01", "q99") if scheme == "bounds_q99" else ("min", "max")))
    numbers = np.array([[0.1, 0.7, 0.9], [5.0, -5.0, 0.0]])
    mask = np.array(ACTION["mask"])
    expected = np.clip(np.where(mask, 2 * (numbers - low) / (high - low + 1e-8) - 1, numbers), -1, 1)
    found = normalizer.normalize(torch.from_numpy(numbers).float())
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)
    back = np.where(mask, 0.5 * (expected + 1) * (high - low + 1e-8) + low, expected)
    np.testing.assert_allclose(normalizer.restore(found).numpy(), back, atol=1e-6)


def test_mean_and_deviation(tmp_path: Path) -> None:
    folder_with(tmp_path, "dataset_statistics.json", {"mine": {"action": ACTION}})
    normalizer = Statistics.of_folder(tmp_path, "mine").normalizer("action", "mean_std", 3)
    numbers = torch.tensor([2.0, 2.0, 7.0])
    assert normalizer.normalize(numbers).tolist() == pytest.approx([2.0, 2.0, 7.0], rel=1e-5)
    torch.testing.assert_close(normalizer.restore(normalizer.normalize(numbers)), numbers)


def test_minimum_and_maximum_of_a_robot_s_parts(tmp_path: Path) -> None:
    parts = {"arm": {"min": [-1.0, 0.0], "max": [1.0, 4.0]}, "hand": {"min": [0.5], "max": [0.5], "mean": [0.1]}}
    statistics = {"gr1": {"statistics": {"action": parts, "state": {"arm": {"mean": [1.0], "std": [2.0]}}}}}
    (tmp_path / "experiment_cfg").mkdir()
    folder_with(tmp_path / "experiment_cfg", "metadata.json", statistics)
    known = Statistics.of_folder(tmp_path, "gr1")
    actions = known.normalizer("action", "min_max", 3)
    numbers = torch.tensor([[0.5, 5.0, 0.7]])
    # Not cut off; what never changes becomes 0, and what it is again.
    torch.testing.assert_close(actions.normalize(numbers), torch.tensor([[0.5, 1.5, 0.0]]))
    torch.testing.assert_close(actions.restore(torch.tensor([[0.5, 1.5, 0.3]])), torch.tensor([[0.5, 5.0, 0.5]]))
    assert known.normalizer("proprio", "mean_std", 1).high.tolist() == [2.0]
    with pytest.raises(ConfigError, match="norm_scheme: received mean_std, .* has max, min"):
        known.normalizer("action", "mean_std", 3)


@pytest.mark.parametrize(
    ("key", "size", "scheme", "words"),
    [
        ("libero_spatia", 3, "bounds", "unnorm_key: received libero_spatia; .* Did you mean libero_spatial"),
        (None, 3, "bounds", "unnorm_key: received None; .* bridge, libero_spatial"),
        ("bridge", 4, "bounds", "action_dim: received 4; .* Set it to 3"),
        ("bridge", 3, "bounds_q99", "norm_scheme: received bounds_q99, which needs q01 and q99"),
    ],
)
def test_what_does_not_fit_is_refused(key: str, size: int, scheme: Scheme, words: str, tmp_path: Path) -> None:
    bounds = {"action": {"min": [0.0] * 3, "max": [1.0] * 3}}
    folder_with(tmp_path, "dataset_statistics.json", {"bridge": bounds, "libero_spatial_no_noops": bounds})
    with pytest.raises(ConfigError, match=words):
        Statistics.of_folder(tmp_path, key).normalizer("action", scheme, size)


def test_the_length_is_that_of_the_statistics_which_may_be_padded(tmp_path: Path) -> None:
    entry = {"q01": [0.0, -1.0, 0.0], "q99": [2.0, 1.0, 0.0], "mask": [True, False, True]}
    folder_with(tmp_path, "dataset_statistics.json", {"mine": {"action": entry, "proprio": entry}})
    statistics = Statistics.of_folder(tmp_path, None)
    assert len(statistics.normalizer("proprio", "bounds_q99", None)) == 3
    short = statistics.normalizer("proprio", "bounds_q99", 2)
    assert len(short) == 2
    assert short.normalize(torch.tensor([[2.0, 0.5]])).tolist() == [[1.0, 0.5]]
    for size in (1, 4):  # one that is no padding, and one that is not there
        with pytest.raises(ConfigError, match=f"state_dim: received {size}; .* have 3 numbers of 'proprio'"):
            statistics.normalizer("proprio", "bounds_q99", size)


def test_statistics_of_published_training_come_before_those_in_assets(tmp_path: Path) -> None:
    def write(folder: str, mean: float) -> None:
        (tmp_path / folder).mkdir(parents=True)
        stats = {entry: {"mean": [mean], "std": [1.0]} for entry in ("actions", "state")}
        folder_with(tmp_path / folder, "norm_stats.json", {"norm_stats": stats})

    write("assets/physical-intelligence/libero", 1.0)
    write("assets/droid", 2.0)
    found = {name: entry["action"]["mean"][0] for name, entry in read_statistics(tmp_path).items()}
    assert found == {"physical-intelligence/libero": 1.0, "droid": 2.0}
    write("physical-intelligence/libero", 3.0)
    found = {name: entry["action"]["mean"][0] for name, entry in read_statistics(tmp_path).items()}
    assert found == {"physical-intelligence/libero": 3.0, "droid": 2.0}


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [("bounds_q99", [0.5, 0.0, 0.0]), ("quantiles", [0.5, 0.0, 0.0]), ("mean_std", [0.0, 0.5, 0.0])],
)
def test_what_is_far_from_the_statistics(scheme: Scheme, expected: list[float], tmp_path: Path) -> None:
    folder_with(tmp_path, "dataset_statistics.json", {"mine": {"action": {**ACTION, "std": [1.0, 0.1, 2.0]}}})
    normalizer = Statistics.of_folder(tmp_path, None).normalizer("action", scheme, 3)
    # 1.04 is within what quantiles leave out, 1.6 is six deviations from the mean; the last is not normalised.
    numbers = torch.tensor([[[0.52, 1.0, 0.0]], [[-0.53, 1.6, 0.9]]])
    assert normalizer.beyond(numbers).tolist() == expected


def test_names_without_idle_actions_are_found(tmp_path: Path) -> None:
    bounds = {"action": {"min": [0.0], "max": [1.0]}}
    folder_with(tmp_path, "dataset_statistics.json", {"libero_goal_no_noops": bounds, "other": bounds})
    Statistics.of_folder(tmp_path, "libero_goal").normalizer("action", "bounds", 1)


@pytest.mark.parametrize(
    ("statistics", "is_unit"),
    [
        ({"min": [-1.0, 0.0], "max": [1.0, 1.0]}, True),
        ({"q01": [-1.0, 0.0], "q99": [1.0, 0.996]}, True),
        ({"min": [0.0, -1.0], "max": [1.0, 1.0]}, False),
        ({"q01": [0.0, -1.0], "q99": [1.0, 1.0]}, False),
        ({"min": [-1.0, 0.0, 0.0], "max": [1.0, 1.0, 0.0]}, True),  # padded
        ({"min": [-1.0, 0.0], "max": [1.0, 0.04]}, None),  # an opening in meters
        ({"mean": [0.0, 0.3], "std": [1.0, 0.458]}, True),
        ({"mean": [0.0, -0.4], "std": [1.0, 0.917]}, False),
        ({"mean": [0.0, 0.4], "std": [1.0, 0.917]}, False),
        ({"mean": [0.0, 0.99], "std": [1.0, 0.1]}, None),
        ({"mean": [0.0, 0.2], "std": [1.0, 0.7]}, None),
        ({"mean": [0.0, 0.0], "std": [1.0, 0.2]}, None),  # small numbers around 0
        ({"mean": [0.0, 0.2]}, None),
        ({}, None),
    ],
)
def test_statistics_tell_what_a_gripper_says(statistics: dict[str, list[float]], is_unit: bool | None) -> None:
    assert Statistics({"action": statistics}, "mine").says_unit_gripper(2) is is_unit
