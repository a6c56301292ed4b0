"""A classifier that is trained on data sets is the one that rewards read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.config.schema.value import SuccessClassifierConfig
from rlinf.errors import ConfigError, DatasetError
from rlinf.models import get_model
from rlinf.models.control.frame_classifier import CLASSIFIER_FILE, FrameClassifier
from rlinf.models.control.success_classifier import SuccessClassifier

KEYS = ["main_images", "wrist_images"]


def build(**keys: Any) -> FrameClassifier:
    torch.manual_seed(0)
    cfg = SuccessClassifierConfig(
        model_type="success_classifier", image_keys=KEYS, image_size=[16, 16], latent_dim=8, **keys
    )
    model = get_model(cfg)
    assert isinstance(model, FrameClassifier)
    return model


def images(size: int = 16) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {key: torch.randint(256, (3, size, size, 3), dtype=torch.uint8, generator=generator) for key in KEYS}


def test_the_published_file_says_what_the_model_says(tmp_path: Path) -> None:
    model = build()
    logits = model(model.record([images()], ["a", "b", "c"]))
    assert logits.shape == (3, 1, 1)
    model.publish(tmp_path / "checkpoint", dict(model.state_dict()))
    read = SuccessClassifier.load(tmp_path / "checkpoint" / CLASSIFIER_FILE)
    torch.testing.assert_close(read(images()), logits.flatten())
    assert read.cfg.image_keys == tuple(KEYS)
    assert logits.std() > 0


def test_images_are_those_of_the_recipe() -> None:
    with pytest.raises(DatasetError, match=r"image_size: received \[16, 16\]; the data sets have images of \[24, 24\]"):
        build().record([images(24)], ["a", "b", "c"])


def test_the_published_file_knows_the_recipes_words(tmp_path: Path) -> None:
    model = build(words=["pick", "red", "green"])
    tasks = ["pick red", "pick green", "Pick red."]
    shown = {key: image[:1].expand(3, -1, -1, -1) for key, image in images().items()}
    logits = model(model.record([shown], tasks)).flatten()
    torch.testing.assert_close(logits[0], logits[2])
    assert (logits[0] - logits[1]).abs() > 1e-3
    model.publish(tmp_path, dict(model.state_dict()))
    read = SuccessClassifier.load(tmp_path / CLASSIFIER_FILE)
    torch.testing.assert_close(read({**shown, "task_descriptions": tasks}), logits)
    with pytest.raises(ConfigError, match="does not know blue"):
        model.record([shown], ["pick red", "pick blue", "pick red"])
