"""Convolutions for camera images, which ``actor.model.encoder`` names."""

from __future__ import annotations

import math

import torch
from torch import nn

_STEM_WIDTH = 32
"""Channels of the first layer; the residual networks double them at every stage after the first."""
_GROUP_WIDTH = 16
"""Channels that are normalised together. Batch statistics would make a policy's action depend on its neighbours."""


def small(channels: int) -> nn.Sequential:
    """Three convolutions of 3x3, the first two of stride 2: enough for simple scenes of 32 to 84 pixels.

    Args:
        channels: Channels of the images.
    """
    layers: list[nn.Module] = []
    for width, stride in ((16, 2), (32, 2), (32, 1)):
        convolution = nn.Conv2d(channels, width, 3, stride)
        nn.init.orthogonal_(convolution.weight, math.sqrt(2))
        nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
        layers += [convolution, nn.ReLU()]
        channels = width
    return nn.Sequential(*layers, nn.Flatten())


def resnet(channels: int, blocks: tuple[int, ...]) -> nn.Sequential:
    """A residual network (He et al., 2016) with group normalisation (Wu and He, 2018), pooled over the image.

    Args:
        channels: Channels of the images.
        blocks: Residual blocks of each stage.
    """
    width = _STEM_WIDTH
    layers: list[nn.Module] = [nn.Conv2d(channels, width, 7, 2, 3, bias=False), _norm(width), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    channels = width
    for stage, count in enumerate(blocks):
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(ResidualBlock(channels, width, stride))
            channels = width
        width *= 2
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


class ResidualBlock(nn.Module):
    """Two convolutions of 3x3 with a shortcut.

    Args:
        channels: Channels of the input.
        width: Channels of the output.
        stride: Of the first convolution.
    """

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(channels, width, 3, stride, 1, bias=False),
            _norm(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, 1, 1, bias=False),
            _norm(width),
        )
        same = stride == 1 and channels == width
        projection = nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), _norm(width))
        self.shortcut = nn.Identity() if same else projection

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [N, channels, H, W] to [N, width, H / stride, W / stride]."""
        return torch.relu(self.path(x) + self.shortcut(x))


def _norm(width: int) -> nn.GroupNorm:
    return nn.GroupNorm(width // _GROUP_WIDTH, width)


def resnet10(channels: int) -> nn.Sequential:
    """A residual network of one block in each stage."""
    return resnet(channels, (1, 1, 1, 1))


def resnet18(channels: int) -> nn.Sequential:
    """A residual network of two blocks in each stage."""
    return resnet(channels, (2, 2, 2, 2))
