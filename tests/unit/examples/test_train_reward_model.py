"""``examples/reward/train_reward_model.py``: what it labels as success, and that what it trains can tell."""

from types import ModuleType
from typing import Any

import pytest
import torch

from rlinf.config.schema.env import PixelReachEnvConfig
from rlinf.errors import ConfigError
from rlinf.models.control.success_classifier import ClassifierConfig, SuccessClassifier
from tests.unit.examples.example_scripts import load_example

TOUCH = 0.12


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_example("reward/train_reward_model.py")


@pytest.fixture(scope="module")
def frames(script: ModuleType) -> Any:
    cfg = PixelReachEnvConfig(
        env_type="pixel_reach",
        total_num_envs=50,
        max_episode_steps=30,
        max_steps_per_rollout_epoch=30,
        image_size=16,
        goal_in_states=True,
        ignore_terminations=True,
    )
    return script.collect(cfg, ["states", "main_images"], steps=15_000, seed=3)


def test_frames_are_labelled_by_success(frames: Any) -> None:
    states = frames.obs["states"]
    distance = (states[:, 2:] - states[:, :2]).norm(dim=-1)
    assert len(states) == len(frames.labels) == len(frames.obs["main_images"])
    assert frames.labels.sum() > 20
    assert torch.equal(frames.labels, distance < TOUCH)


def test_a_classifier_learns_to_tell_success(script: ModuleType, frames: Any) -> None:
    torch.manual_seed(0)
    offset = frames.obs["states"][:, 2:] - frames.obs["states"][:, :2]
    seen = script.Frames({"states": offset, "main_images": frames.obs["main_images"]}, frames.labels)
    classifier = SuccessClassifier(ClassifierConfig(image_keys=(), state_dim=2))
    before = script.judge(classifier, seen)
    script.fit(classifier, seen, updates=300, lr=1e-2, seed=0)
    after = script.judge(classifier, seen)
    assert after["frames"] == len(frames.labels)
    assert after["recall"] > 0.9
    assert after["precision"] > max(0.5, before["precision"])


def test_frames_without_success_cannot_be_learned_from(script: ModuleType, frames: Any) -> None:
    failures = script.Frames(frames.obs, torch.zeros_like(frames.labels))
    with pytest.raises(ConfigError, match="0 successes"):
        script.fit(SuccessClassifier(ClassifierConfig()), failures, updates=1, lr=1e-3, seed=0)
