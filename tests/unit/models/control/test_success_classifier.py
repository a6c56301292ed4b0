"""The classifier of success: log-odds of images and states, saved and loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rlinf.errors import ConfigError
from rlinf.models.control.success_classifier import ClassifierConfig, SuccessClassifier

CFG = ClassifierConfig(image_size=(32, 32), state_dim=3, latent_dim=8)


def observations(num: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (num, 32, 32, 3), generator=generator, dtype=torch.uint8)
    return {"main_images": images, "states": torch.randn(num, 3, generator=generator)}


def test_every_row_has_log_odds_that_follow_image_and_state() -> None:
    torch.manual_seed(0)
    classifier = SuccessClassifier(CFG)
    obs = observations(3)
    logits = classifier(obs)
    assert (logits.shape, logits.dtype) == ((3,), torch.float32)
    darker = classifier({**obs, "main_images": torch.zeros_like(obs["main_images"])})
    elsewhere = classifier({**obs, "states": obs["states"] + 1})
    assert (darker != logits).all()
    assert (elsewhere != logits).all()


def test_states_are_not_looked_at_where_the_config_has_none() -> None:
    classifier = SuccessClassifier(ClassifierConfig(image_size=(32, 32), latent_dim=8))
    obs = observations(2)
    assert torch.equal(classifier(obs), classifier({"main_images": obs["main_images"]}))


def test_a_saved_classifier_gives_the_same_numbers(tmp_path: Path) -> None:
    classifier = SuccessClassifier(CFG)
    classifier.save(tmp_path / "new" / "classifier.pt")
    loaded = SuccessClassifier.load(tmp_path / "new" / "classifier.pt")
    assert loaded.cfg == CFG
    assert torch.equal(loaded(observations(2)), classifier(observations(2)))


def test_a_file_that_is_not_there_or_something_else_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist. Train it with"):
        SuccessClassifier.load(tmp_path / "none.pt")
    torch.save({"weights": {}}, tmp_path / "other.pt")
    with pytest.raises(ConfigError, match="holds no classifier"):
        SuccessClassifier.load(tmp_path / "other.pt")
