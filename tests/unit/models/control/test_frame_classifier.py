"""A classifier that is trained on data sets is the one that rewards read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rlinf.config.schema.value import SuccessClassifierConfig
from rlinf.errors import DatasetError
from rlinf.models import get_model
from rlinf.models.control.frame_classifier import CLASSIFIER_FILE, FrameClassifier
from rlinf.models.control.success_classifier import SuccessClassifier

KEYS = ["main_images", "wrist_images"]


def build(**keys: object) -> FrameClassifier:
    torch.manual_seed(0)
    cfg = SuccessClassifierConfig(model_type="success_classifier", image_keys=KEYS, image_size=[16, 16], latent_dim=8)
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
