"""A classifier of success on camera images and states: what a learned reward is made of."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rlinf.data.messages.embodied import Observation
from rlinf.errors import ConfigError
from rlinf.models.control.cnn_policy import CameraEncoder

_HIDDEN = 64
"""Width of the layer between features and answer."""


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig:
    """What a classifier sees, and by which network; kept in its file.

    Attributes:
        image_keys: Cameras: keys of the observation that hold uint8 [B, H, W, 3].
        image_size: Height and width of the images in pixels.
        state_dim: Length of ``obs["states"]``; 0 does not look at it.
        encoder: Convolutions, as ``actor.model.encoder``.
        latent_dim: Features of one camera.
    """

    image_keys: tuple[str, ...] = ("main_images",)
    image_size: tuple[int, int] = (48, 48)
    state_dim: int = 0
    encoder: str = "small"
    latent_dim: int = 64


class SuccessClassifier(nn.Module):
    """Predicts whether the task is solved in an observation.

    Args:
        cfg: What it sees.
    """

    def __init__(self, cfg: ClassifierConfig) -> None:
        super().__init__()
        self.cfg = cfg
        height, width = cfg.image_size
        self.cameras = nn.ModuleDict(
            {key: CameraEncoder(cfg.encoder, cfg.latent_dim, height, width) for key in cfg.image_keys}
        )
        features = len(cfg.image_keys) * cfg.latent_dim + cfg.state_dim
        self.head = nn.Sequential(nn.Linear(features, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, 1))

    def forward(self, obs: Observation) -> torch.Tensor:
        """Return the log-odds of success in ``B`` observations, float32 [B]."""
        device = next(self.parameters()).device
        features = [camera(obs[key].to(device)) for key, camera in self.cameras.items()]
        if self.cfg.state_dim:
            features.append(obs["states"].to(device, torch.float32))
        logits: torch.Tensor = self.head(torch.cat(features, -1))
        return logits.squeeze(-1)

    def save(self, path: Path) -> None:
        """Write configuration and weights to one file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save({"config": asdict(self.cfg), "weights": self.state_dict()}, path)

    @staticmethod
    def load(path: Path) -> SuccessClassifier:
        """Read what ``save`` wrote.

        Raises:
            ConfigError: There is no such file, or it is something else.
        """
        try:
            content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
            classifier = SuccessClassifier(ClassifierConfig(**content["config"]))
            classifier.load_state_dict(content["weights"])
        except FileNotFoundError as error:
            raise ConfigError(
                f"model_path: '{path}' does not exist. Train it with examples/reward/train_reward_model.py, or name "
                "another file."
            ) from error
        except Exception as error:
            raise ConfigError(
                f"model_path: '{path}' holds no classifier that examples/reward/train_reward_model.py wrote ({error}). "
                "Name another file."
            ) from error
        return classifier
