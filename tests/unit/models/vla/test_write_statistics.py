"""Statistics of a data set are written where each model has them, and are those that its policy then normalises by."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from rlinf.data.datasets.lerobot import LeRobotDataset
from tests.unit.data.frame_sets import LENGTHS, frame_set
from tests.unit.models.vla.gr00t_policies import gr00t_policy
from tests.unit.models.vla.pi_policies import pi_policy
from tests.unit.models.vla.smolvla_policies import smolvla_policy
from tests.unit.models.vla.vla_policies import random_policy
from toolkits.vla.write_statistics import relative_actions, statistics_of, write_statistics

pytest.importorskip("transformers")
NUMBERS = np.random.default_rng(0).normal(3.0, 2.0, (500, 3)).astype(np.float32)
ENTRIES = {"action": statistics_of(NUMBERS), "proprio": statistics_of(NUMBERS - 7.0)}


@pytest.mark.parametrize(
    ("policy", "fields"),
    [
        (lambda folder: pi_policy(folder, "pi0"), ("mean", "std")),
        (smolvla_policy, ("mean", "std")),
        (gr00t_policy, ("min", "max")),
        (lambda folder: random_policy("oft", folder), ("q01", "q99")),
    ],
    ids=["openpi", "smolvla", "gr00t", "oft"],
)
def test_a_policy_reads_what_was_written(
    policy: Callable[[Path], Any], fields: tuple[str, str], tmp_path: Path
) -> None:
    policy(tmp_path)
    files = {path for path in tmp_path.rglob("*") if path.is_file()}
    write_statistics(tmp_path, "mine", ENTRIES)
    again = policy(tmp_path).inputs.actions
    for ours, field in zip((again.low, again.high), fields, strict=True):
        np.testing.assert_allclose(ours.numpy(), ENTRIES["action"][field], rtol=1e-6)
    new = {
        path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file() and path not in files
    }
    assert new <= {
        "assets/mine/norm_stats.json",
        "dataset_statistics.json",
        "policy_postprocessor_step_0_unnormalizer_processor.safetensors",
    }


def test_lerobot_restores_by_what_it_normalises_by(tmp_path: Path) -> None:
    smolvla_policy(tmp_path)
    write_statistics(tmp_path, "mine", ENTRIES)
    before, after = (load_file(path) for path in sorted(tmp_path.glob("policy_*.safetensors")))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert before["observation.state.q99"].tolist() == pytest.approx(ENTRIES["proprio"]["q99"])


def test_the_parts_of_a_robot_and_other_robots_are_kept(tmp_path: Path) -> None:
    gr00t_policy(tmp_path)
    path = tmp_path / "experiment_cfg" / "metadata.json"
    known = json.loads(path.read_text())
    parts = {"arm": {"min": [0.0, 0.0], "max": [1.0, 1.0]}, "hand": {"min": [0.0], "max": [1.0]}}
    known["gr1"] = {"statistics": {"action": parts, "state": {"all": {"min": [0.0]}}}, "modalities": {"a": 1}}
    path.write_text(json.dumps(known))
    write_statistics(tmp_path, "mine", ENTRIES, embodiment="gr1")
    found = json.loads(path.read_text())
    assert found["new_embodiment"] == known["new_embodiment"]
    assert found["gr1"]["modalities"] == {"a": 1}
    assert found["gr1"]["statistics"]["action"]["hand"]["max"] == ENTRIES["action"]["max"][2:]
    assert found["gr1"]["statistics"]["state"]["all"]["max"] == ENTRIES["proprio"]["max"]


def test_statistics_of_published_training_are_replaced_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "physical-intelligence" / "libero").mkdir(parents=True)
    (tmp_path / "physical-intelligence" / "libero" / "norm_stats.json").write_text("{}")
    write_statistics(tmp_path, "physical-intelligence/libero", ENTRIES)
    assert not (tmp_path / "assets").exists()
    written = json.loads((tmp_path / "physical-intelligence" / "libero" / "norm_stats.json").read_text())
    assert written["norm_stats"]["actions"] == ENTRIES["action"]


def test_relative_actions_are_those_of_whole_chunks(tmp_path: Path) -> None:
    dataset = LeRobotDataset(frame_set(tmp_path / "one"))
    actions, states = dataset.column("action"), dataset.column("observation.state")
    found = relative_actions(dataset, [1], 3).reshape(len(actions), 3, -1)
    first, last = 0, LENGTHS[0] - 1
    np.testing.assert_allclose(found[first, 2, 0], actions[2, 0] - states[0, 0])
    # Behind an episode's end its last action goes on.
    np.testing.assert_allclose(found[last, 2, 0], actions[last, 0] - states[last, 0])
    np.testing.assert_allclose(found[:, 0, 1:], actions[:, 1:])
