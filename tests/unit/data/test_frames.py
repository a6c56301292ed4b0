"""Frames of data sets with the actions that follow, in batches that their number names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlinf.config.schema.data import AugmentationConfig, MixtureEntryConfig
from rlinf.data.messages.embodied import CROPPED
from rlinf.errors import DatasetError
from tests.unit.data.frame_sets import HORIZON, LENGTHS, frame_set, stream


def test_rows_are_frames_with_the_actions_that_follow(tmp_path: Path) -> None:
    batch = stream(frame_set(tmp_path / "one")).read(0, 64, slice(0, 64))
    # States count the frames of the whole set, and actions those of their episode.
    ends = np.cumsum(LENGTHS)
    for row in range(64):
        frame = int(batch.obs["states"][row, 0])
        end = int(ends[np.searchsorted(ends, frame, side="right")])
        expected = [float(min(frame + step, end - 1)) for step in range(HORIZON)]
        assert batch.actions[row, :, 0].tolist() == expected
        assert batch.is_action[row].tolist() == [frame + step < end for step in range(HORIZON)]
        assert (batch.obs["main_images"][row] == 10 * frame).all()
        assert batch.obs["task_descriptions"][row] == f"task {np.searchsorted(ends, frame, side='right') % 2}"
    assert len(set(batch.obs["states"][:, 0].tolist())) == sum(LENGTHS)


def test_crops_are_known_to_be_crops(tmp_path: Path) -> None:
    path = frame_set(tmp_path / "one")
    cropped = stream(path, augmentation=AugmentationConfig(crop_area=0.9)).read(0, 16, slice(4, 8)).obs
    assert cropped[CROPPED].tolist() == [True] * 4
    assert CROPPED not in stream(path, augmentation=AugmentationConfig(hue=0.1)).read(0, 16, slice(4, 8)).obs


def test_batches_are_named_by_their_number_however_they_are_cut(tmp_path: Path) -> None:
    changes = AugmentationConfig(crop_area=0.8, brightness=0.3, contrast=0.3)
    path = frame_set(tmp_path / "one")
    whole = stream(path, augmentation=changes).read(5, 16, slice(0, 16))
    again = stream(path, augmentation=changes)
    parts = [again.read(5, 16, slice(start, start + 4)) for start in range(0, 16, 4)]
    for key in ("states", "main_images"):
        assert torch.equal(torch.cat([part.obs[key] for part in parts]), whole.obs[key])
    assert torch.equal(torch.cat([part.actions for part in parts]), whole.actions)
    assert [task for part in parts for task in part.obs["task_descriptions"]] == whole.obs["task_descriptions"]
    assert not torch.equal(stream(path).read(6, 16, slice(0, 16)).actions, whole.actions)
    assert not torch.equal(stream(path, seed=1).read(5, 16, slice(0, 16)).actions, whole.actions)


def test_actions_are_counted_over_the_whole_batch(tmp_path: Path) -> None:
    frames = stream(frame_set(tmp_path / "one"))
    assert frames.num_actions(3, 32) == int(frames.read(3, 32, slice(0, 32)).is_action.sum())


def test_a_mixture_is_sampled_by_its_weights(tmp_path: Path) -> None:
    entries = [MixtureEntryConfig(path=str(frame_set(tmp_path / "two", offset=100)), weight=1.0)]
    frames = stream(frame_set(tmp_path / "one"), weight=3.0, mixture=entries)
    assert frames.num_frames == 2 * sum(LENGTHS)
    states = torch.cat([frames.read(n, 64, slice(0, 64)).obs["states"] for n in range(8)])[:, 0]
    assert float((states >= 100).float().mean()) == pytest.approx(0.25, abs=0.06)
    assert set(states[states >= 100].tolist()) == {100.0 + frame for frame in range(sum(LENGTHS))}


def test_only_the_first_episodes_are_read_if_they_are_to_be(tmp_path: Path) -> None:
    batch = stream(frame_set(tmp_path / "one"), max_episodes=1).read(0, 64, slice(0, 64))
    assert batch.obs["states"].max() == LENGTHS[0] - 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"camera": "wrist"}, r"has no observation.images.main; its cameras are observation.images.wrist"),
     ({"action_dim": 3}, r"action of shape \(3,\), .* of \(2,\)")],
    ids=["cameras", "actions"],
)  # fmt: skip
def test_sets_of_another_robot_are_refused(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    other = [MixtureEntryConfig(path=str(frame_set(tmp_path / "two", **changes)))]
    with pytest.raises(DatasetError, match=words):
        stream(frame_set(tmp_path / "one"), mixture=other)
