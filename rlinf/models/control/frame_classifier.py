"""``success_classifier``: whether the task is solved in a frame, trained on data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from rlinf.config.schema.value import SuccessClassifierConfig
from rlinf.errors import DatasetError
from rlinf.models.control.success_classifier import TASK_WORDS, ClassifierConfig, SuccessClassifier
from rlinf.models.frame_model import FrameModel

CLASSIFIER_FILE = "classifier.pt"
"""What ``reward_type: model`` reads, in each checkpoint."""


class FrameClassifier(FrameModel):
    """See ``FrameModel``: one model, which says the log-odds of success.

    Args:
        cfg: The ``actor.model`` section.
    """

    cfg: SuccessClassifierConfig

    def __init__(self, cfg: SuccessClassifierConfig) -> None:
        super().__init__(cfg)
        height, width = cfg.image_size
        self.classifier = SuccessClassifier(
            ClassifierConfig(
                image_keys=tuple(cfg.image_keys),
                image_size=(height, width),
                encoder=cfg.encoder,
                latent_dim=cfg.latent_dim,
                words=tuple(cfg.words),
            )
        )

    def record(self, images: Sequence[dict[str, torch.Tensor]], tasks: Sequence[str]) -> dict[str, torch.Tensor]:
        """See ``FrameModel``: the images of the frame, and the words of its sentence.

        Raises:
            ConfigError: A sentence has a word that the recipe does not list.
            DatasetError: Images are of another size.
        """
        (seen,) = images
        for key, image in seen.items():
            if list(image.shape[1:3]) != self.cfg.image_size:
                raise DatasetError(
                    f"actor.model.image_size: received {self.cfg.image_size}; the data sets have images of "
                    f"{list(image.shape[1:3])} for {key}. Set it to that."
                )
        return {**seen, TASK_WORDS: self.classifier.word_numbers(tasks)}

    def forward(self, record: dict[str, torch.Tensor]) -> torch.Tensor:
        """See ``FrameModel``."""
        logits: torch.Tensor = self.classifier(record)
        return logits.float().view(-1, 1, 1)

    def publish(self, folder: Path, weights: Mapping[str, torch.Tensor]) -> None:
        """See ``FrameModel``: the file of the classifier."""
        own = {name.removeprefix("classifier."): value for name, value in weights.items() if "." in name}
        folder.mkdir(parents=True, exist_ok=True)
        torch.save({"config": asdict(self.classifier.cfg), "weights": own}, folder / CLASSIFIER_FILE)


def build_classifier(cfg: SuccessClassifierConfig, *, num_values: int = 1) -> FrameClassifier:
    """Build what ``model_type: success_classifier`` names.

    Args:
        cfg: The ``actor.model`` section.
        num_values: Not used.
    """
    del num_values
    return FrameClassifier(cfg)
