"""The contract between models that judge recorded frames and their learner."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from rlinf.config.schema.value import FrameModelConfig
from rlinf.models.trainable import TrainableModel

SCALE = "target_scale"
"""Name of the buffer that holds what targets were brought to the model's units by."""


class FrameModel(TrainableModel):
    """An ensemble of ``M`` models that say ``B`` numbers of each sample of frames.

    Args:
        cfg: The ``actor.model`` section.
    """

    target_scale: torch.Tensor

    def __init__(self, cfg: FrameModelConfig) -> None:
        super().__init__()
        self.cfg = cfg
        self.register_buffer(SCALE, torch.zeros(2, device="cpu"))

    @abc.abstractmethod
    def record(self, images: Sequence[dict[str, torch.Tensor]], tasks: Sequence[str]) -> dict[str, torch.Tensor]:
        """Return what ``forward`` takes, on the host.

        Args:
            images: For each frame of a sample, uint8 [n, H, W, 3] by camera.
            tasks: ``n`` sentences.
        """

    @abc.abstractmethod
    def forward(self, record: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return logits, float32 [n, M, B]."""

    def publish(self, folder: Path, weights: Mapping[str, torch.Tensor]) -> None:
        """Write the model as others read it, where there is such a form.

        Args:
            folder: Of the checkpoint.
            weights: Whole tensors by their names.
        """
