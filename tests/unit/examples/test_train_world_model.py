"""``examples/world_model/train_world_model.py``: what it says of imagined episodes, by the sentence of each."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch.nn import functional

from rlinf.data.datasets.lerobot import LeRobotEpisode, LeRobotWriter
from rlinf.data.datasets.lerobot.writer import WriterOptions
from rlinf.errors import ConfigError
from rlinf.models.control.success_classifier import ClassifierConfig, SuccessClassifier
from rlinf.models.world.frame_unet import FrameUNet
from tests.unit.examples.example_scripts import load_example

COLOURS = ("red", "green")
SIZE, LENGTH, BRIGHT = 16, 6, 130
EPISODES = 40


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_example("world_model/train_world_model.py")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Episodes whose actions brighten red and green; one of them is to become bright, and half of them fail."""
    root, generator = tmp_path_factory.mktemp("world") / "episodes", np.random.default_rng(0)
    with LeRobotWriter(root, WriterOptions(fps=10)) as writer:
        for number in range(EPISODES):
            named = number % 2
            actions = generator.uniform(0.0, 0.3, (LENGTH, 2)).astype(np.float32)
            actions[:, named if number % 4 < 2 else 1 - named] = 1.0
            levels = 20 + 30 * np.concatenate([np.zeros((1, 2)), actions.cumsum(0)])
            images = np.zeros((LENGTH, SIZE, SIZE, 3), np.uint8)
            images[..., :2] = levels[:-1, None, None]
            columns = {
                "observation.images.main": images,
                "action": actions,
                "next.success": levels[1:, named, None] > BRIGHT,
            }
            writer.add(LeRobotEpisode(columns, f"make it {COLOURS[named]}"))
    return root


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that has learned which colour is to be bright."""
    torch.manual_seed(0)
    words = ("make", "it", *COLOURS)
    model = SuccessClassifier(ClassifierConfig(image_size=(SIZE, SIZE), latent_dim=16, words=words))
    optimizer, generator = torch.optim.Adam(model.parameters(), 3e-3), torch.Generator().manual_seed(0)
    for _ in range(250):
        levels, named = torch.randint(256, (64, 2), generator=generator), torch.randint(2, (64,), generator=generator)
        images = torch.zeros(64, SIZE, SIZE, 3, dtype=torch.uint8)
        images[..., :2] = levels[:, None, None].to(torch.uint8)
        tasks = [f"make it {COLOURS[number]}" for number in named.tolist()]
        logits = model({"main_images": images, "task_descriptions": tasks})
        solved = levels[torch.arange(64), named] > BRIGHT
        loss = functional.binary_cross_entropy_with_logits(logits, solved.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    path = tmp_path_factory.mktemp("classifier") / "classifier.pt"
    model.save(path)
    return path


def arguments(recorded: Path, output: Path, **changes: object) -> Namespace:
    keys = {"num_frames": 1, "width": 4, "num_steps": 1, "updates": 150, "lr": 1e-2, "seed": 0}
    return Namespace(dataset=str(recorded), output=str(output), **{"success_classifier": None, **keys, **changes})


def test_held_out_episodes_are_imagined_and_judged_by_their_sentences(
    script: ModuleType, recorded: Path, classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "BATCH", 16)
    monkeypatch.setattr(script, "HELD_OUT", 0.4)
    monkeypatch.setattr(script, "SUCCESS", 0.5)
    script.train(arguments(recorded, tmp_path / "model", success_classifier=str(classifier)))
    results = json.loads((tmp_path / "model" / "results.json").read_text())
    assert results["episodes"] == 16
    assert results["recorded_successes"] == 8
    assert results["psnr"] > max(26, results["psnr_of_no_change"] + 6)
    assert results["agreement"] >= 0.85
    assert results["successes_imagined"] >= 0.75
    assert results["failures_imagined"] >= 0.75
    assert results["other_tasks_refused"] >= 0.75
    model = FrameUNet.load(tmp_path / "model")
    assert model.classifier is not None
    assert model.classifier.cfg.words == ("make", "it", *COLOURS)


def test_a_model_below_a_bar_is_said_to_be(
    script: ModuleType, recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script.train(arguments(recorded, tmp_path / "model", updates=1))
    assert "psnr is below 26: raise --updates" in capsys.readouterr().out
    assert set(json.loads((tmp_path / "model" / "results.json").read_text())) == {"psnr", "psnr_of_no_change"}


def test_a_classifier_of_other_tasks_is_refused(script: ModuleType, recorded: Path, tmp_path: Path) -> None:
    SuccessClassifier(ClassifierConfig(image_size=(SIZE, SIZE), words=("make", "it", "red"))).save(tmp_path / "c.pt")
    with pytest.raises(ConfigError, match="does not know green"):
        script.train(arguments(recorded, tmp_path / "model", success_classifier=str(tmp_path / "c.pt")))
    assert not (tmp_path / "model").exists()
