"""``cnn_policy``: convolutions on camera images next to state observations, under the same heads as ``mlp_policy``."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from rlinf.config.registries import encoders
from rlinf.config.schema.model import CameraPolicyConfig, CNNPolicyConfig
from rlinf.data.messages.embodied import Observation
from rlinf.errors import EnvironmentFailure
from rlinf.models.base_policy import BasePolicy
from rlinf.models.control.encoder import Encoder, StateEncoder
from rlinf.models.control.heads import orthogonal
from rlinf.models.control.mlp_policy import build_heads


def build_cnn_policy(cfg: CNNPolicyConfig, *, num_values: int = 1) -> BasePolicy:
    """Build what ``model_type: cnn_policy`` names."""
    return build_heads(cfg, ImageEncoder(cfg), num_values=num_values)


class ImageEncoder(Encoder):
    """Features of each camera, and the state if there is one.

    Images stay uint8 in trajectories and replays; they are brought to [-0.5, 0.5] here.

    Args:
        cfg: The model's keys.
    """

    def __init__(self, cfg: CameraPolicyConfig) -> None:
        super().__init__()
        self.cfg = cfg
        height, width, channels = cfg.image_shape
        self.cameras = nn.ModuleDict(
            {key: CameraEncoder(cfg.encoder, cfg.latent_dim, height, width, channels) for key in cfg.image_keys}
        )
        self.state = StateEncoder(cfg) if cfg.state_size else None
        self.width = len(cfg.image_keys) * cfg.latent_dim + cfg.state_size

    def observe(self, obs: Observation, device: torch.device) -> dict[str, torch.Tensor]:
        """See ``Encoder``.

        Raises:
            EnvironmentFailure: The environment shows no such images.
        """
        seen = {} if self.state is None else self.state.observe(obs, device)
        for key in self.cfg.image_keys:
            image, expected = obs.get(key), self.cfg.image_shape
            if image is None or image.dtype != torch.uint8 or tuple(image.shape[1:]) != expected:
                got = "no such key" if image is None else f"{image.dtype} {list(image.shape)}"
                raise EnvironmentFailure(
                    f"actor.model.image_keys: '{key}' must be torch.uint8 [B, {', '.join(map(str, expected))}]; "
                    f"received {got} from an environment that shows {', '.join(sorted(obs))}. Change image_keys or "
                    "image_size, or the environment's cameras or wrappers."
                )
            seen[key] = image.to(device)
        return seen

    def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """See ``Encoder``."""
        features = [camera(inputs[key]).float() for key, camera in self.cameras.items()]
        if self.state is not None:
            features.append(self.state(inputs))
        return torch.cat(features, -1)

    def augment(self, inputs: dict[str, torch.Tensor], generator: torch.Generator) -> dict[str, torch.Tensor]:
        """See ``Encoder``: images shifted at random."""
        if not self.cfg.random_shift:
            return inputs
        shifted = {key: random_shift(inputs[key], self.cfg.random_shift, generator) for key in self.cfg.image_keys}
        return inputs | shifted

    def shard_units(self) -> list[nn.Module]:
        """See ``Encoder``: one for each camera."""
        return list(self.cameras.values())

    def update_statistics(
        self,
        inputs: dict[str, torch.Tensor],
        valid: torch.Tensor,
        all_reduce: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        """See ``Encoder``."""
        if self.state is not None:
            self.state.update_statistics(inputs, valid, all_reduce)


class CameraEncoder(nn.Module):
    """Convolutions, and a normalised projection that keeps features in (-1, 1) (Yarats et al., 2022).

    Args:
        backbone: Name of the convolutions.
        latent_dim: Features.
        height: Of the images, in pixels.
        width: Of the images, in pixels.
        channels: Of the images; 3 for each that is stacked.
    """

    def __init__(self, backbone: str, latent_dim: int, height: int, width: int, channels: int = 3) -> None:
        super().__init__()
        self.backbone = encoders.get(backbone)(channels)
        with torch.no_grad():
            size = self.backbone(torch.zeros(1, channels, height, width)).shape[-1]
        self.projection = nn.Sequential(
            orthogonal(nn.Linear(size, latent_dim), 1.0), nn.LayerNorm(latent_dim), nn.Tanh()
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Map images, uint8 [N, H, W, channels], to features [N, latent_dim]."""
        dtype = next(self.parameters()).dtype
        pixels = images.permute(0, 3, 1, 2).to(dtype) / 255.0 - 0.5
        features: torch.Tensor = self.projection(self.backbone(pixels))
        return features


def random_shift(images: torch.Tensor, largest: int, generator: torch.Generator) -> torch.Tensor:
    """Shift each image by up to ``largest`` pixels both ways, repeating its border (Kostrikov et al., 2021, DrQ).

    Args:
        images: uint8 [N, H, W, 3], on the host.
        largest: Pixels.
        generator: Source of randomness.
    """
    count, height, width = images.shape[:3]
    shifts = torch.randint(-largest, largest + 1, (2, count, 1), generator=generator)
    rows = (torch.arange(height) + shifts[0]).clamp(0, height - 1)
    columns = (torch.arange(width) + shifts[1]).clamp(0, width - 1)
    samples = torch.arange(count)
    return images[samples[:, None, None], rows[:, :, None], columns[:, None, :]]
