"""From recorded frames to a policy that acts better: a value model labels them, a policy learns the labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlinf
from rlinf.config import validate_cfg
from rlinf.data.datasets.lerobot import LeRobotDataset, LeRobotEpisode, LeRobotWriter
from rlinf.data.datasets.lerobot.labels import read_advantages
from rlinf.data.datasets.lerobot.writer import WriterOptions
from rlinf.models.control.success_classifier import SuccessClassifier
from rlinf.models.vla.guidance import conditioned
from rlinf.runners.launch import launch
from tests.e2e.conftest import read_metrics
from tests.unit.models.vla.value_toy_models import value_config

pytest.importorskip("transformers")
pytestmark = pytest.mark.timeout(300)
TWO_RANKS = {"num_nodes": 1, "cpu_slots_per_node": 2, "component_placement": {"actor": "0-1"}}
BATCH = {"global_batch_size": 16, "micro_batch_size": 8, "optim": {"lr": 1e-3}}
LENGTH = 8


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny model, and rollouts of which every other one succeeds in its fifth frame."""
    folder = tmp_path_factory.mktemp("value")
    value_config(folder / "pi", "recap_value_model")
    with LeRobotWriter(folder / "rollouts", WriterOptions(fps=10, robot_type="toy")) as writer:
        for number in range(4):
            steps = np.arange(LENGTH)
            shades = (30 * steps * (number % 2)).astype(np.uint8)
            columns = {
                "observation.images.main": np.broadcast_to(shades[:, None, None, None], (LENGTH, 16, 16, 3)).copy(),
                "observation.state": np.zeros((LENGTH, 2), np.float32),
                "action": np.full((LENGTH, 2), number % 2, np.float32),
                "next.success": (steps[:, None] >= 4) & (number % 2 == 1),
            }
            writer.add(LeRobotEpisode(columns, "task 0"))
    return folder


@pytest.fixture(scope="module")
def run(one_node: None, world: Path) -> Callable[..., Path]:
    """Runs a recipe that judges frames, and returns its folder."""

    def start(name: str, model: dict[str, Any], loss: str, **changes: Any) -> Path:
        runner = {"task_type": "value", "max_steps": 2, "val_check_interval": 2, **changes.pop("runner", {})}
        runner["logger"] = {"log_path": str(world / "runs"), "experiment_name": name, "logger_backends": []}
        recipe = {
            "cluster": TWO_RANKS,
            "runner": runner,
            "data": {
                "path": str(world / "rollouts"),
                "type": "rollout",
                "val": [{"path": str(world / "rollouts"), "type": "rollout"}],
                **changes,
            },
            "algorithm": {"loss_type": loss, "update_epoch": 3},
            "actor": {"model": model, **BATCH},
        }
        launch(validate_cfg(recipe))
        return world / "runs" / name

    return start


def model_of(world: Path) -> dict[str, Any]:
    return {
        "model_type": "recap_value_model",
        "model_path": str(world / "pi"),
        "num_bins": 11,
        "fusion_hidden_dim": 16,
        "max_prompt_length": 12,
    }


def test_a_value_model_labels_frames_and_a_policy_learns_from_the_labels(world: Path, run: Callable[..., Path]) -> None:
    folder = run("value", model_of(world), "recap_value", advantage_tag="first")
    records = read_metrics(folder)
    assert [record["step"] for record in records] == [0, 1, 2]
    assert {"eval/loss", "eval/error", "eval/rank_correlation"} <= records[2].keys()
    assert records[2]["train/value_loss"] < records[0]["eval/loss"] * 1.5
    dataset = LeRobotDataset(world / "rollouts")
    positive, scores = read_advantages(dataset, "first")
    assert len(scores) == 4 * LENGTH
    assert 0 < positive.mean() < 1
    # The same checkpoint labels the same, without training.
    again = {"only_eval": True, "ckpt_path": str(folder / "checkpoints/global_step_2"), "val_check_interval": -1}
    run("again", model_of(world), "recap_value", advantage_tag="second", runner=again)
    np.testing.assert_allclose(read_advantages(dataset, "second")[1], scores, atol=1e-6)
    policy: dict[str, Any] = {
        "cluster": {"num_nodes": 1, "component_placement": {"actor,rollout,env": 0}},
        "runner": {
            "task_type": "offline",
            "max_epochs": 1,
            "logger": {"log_path": str(world / "runs"), "experiment_name": "policy", "logger_backends": []},
        },
        "data": {"format": "lerobot", "path": str(world / "rollouts"), "advantage_tag": "second"},
        "algorithm": {"adv_type": "embodied_sft", "loss_type": "embodied_sft", "update_epoch": 2},
        "env": {"train": {"env_type": "none"}},
        "actor": {
            "model": {
                "model_type": "openpi",
                "model_path": str(world / "pi"),
                "variant": "pi0",
                "action_dim": 2,
                "state_dim": 2,
                "horizon": 3,
                "num_action_chunks": 2,
                "noise_method": "flow_ode",
                "max_prompt_length": 12,
                "guidance": {"type": "positive", "unconditional_prob": 0.0},
            },
            **BATCH,
        },
    }
    launch(validate_cfg(policy))
    # A run that goes on finds the labels again.
    policy["runner"] |= {"max_epochs": 2, "resume_dir": "auto"}
    launch(validate_cfg(policy))
    records = [record for record in read_metrics(world / "runs" / "policy") if record["step"] > 0]
    assert [record["step"] for record in records] == [1, 2]
    for record in records:
        assert record["train/positive_frames"] == record["train/conditional_frames"] > 0
        assert record["train/conditional_loss"] > 0
    check_that_good_actions_are_requested(world / "runs" / "policy")


def check_that_good_actions_are_requested(folder: Path) -> None:
    """The loaded policy acts as one that is told the word for good actions itself."""
    policy = rlinf.load_policy(folder)
    obs: dict[str, Any] = {"main_images": np.full((16, 16, 3), 90, np.uint8), "states": np.zeros(2)}
    requested = policy.predict({**obs, "task_descriptions": "task 0"})
    cfg: Any = policy.model.cfg
    policy.model.cfg = replace(cfg, guidance=replace(cfg.guidance, type="none"))
    plain = policy.predict({**obs, "task_descriptions": "task 0"})
    told = policy.predict({**obs, "task_descriptions": conditioned("task 0", True)})
    assert requested.shape == (2, 2)
    np.testing.assert_array_equal(requested, told)
    assert np.abs(requested - plain).max() > 0


def test_a_classifier_of_each_checkpoint_is_what_rewards_read(world: Path, run: Callable[..., Path]) -> None:
    model = {"model_type": "success_classifier", "image_size": [16, 16], "latent_dim": 8}
    folder = run("classifier", model, "success")
    assert {"eval/accuracy", "eval/precision", "eval/recall"} <= read_metrics(folder)[2].keys()
    classifier = SuccessClassifier.load(folder / "checkpoints/global_step_2/classifier.pt")
    assert classifier.cfg.image_size == (16, 16)
