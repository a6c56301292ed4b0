"""Tiny models that judge frames, and what they see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from rlinf.config.schema.value import RecapValueModelConfig, SteamValueModelConfig, ValueModelConfig
from rlinf.config.schema.vla import PiConfig
from rlinf.models import get_model
from rlinf.models.vla.value_model import ValueModel
from toolkits.vla.make_tiny import TinyShape, write_tiny_pi

KINDS: dict[str, type[ValueModelConfig]] = {
    "recap_value_model": RecapValueModelConfig,
    "steam_value_model": SteamValueModelConfig,
}


def value_config(folder: Path, kind: str, **keys: Any) -> ValueModelConfig:
    """Return the keys of a tiny model; writes its folder if it is not there."""
    if not folder.exists():
        shape = TinyShape(
            image_size=16, patch_size=8, action_dim=2, state_dim=2, num_bins=16, words=("task 0", "task 1")
        )
        write_tiny_pi(
            folder, shape, PiConfig(model_type="openpi", model_path="", action_dim=2, variant="pi0", horizon=3)
        )
    sizes: dict[str, Any] = {"num_bins": 4, "fusion_hidden_dim": 16, "max_prompt_length": 6}
    return KINDS[kind](model_type=kind, model_path=str(folder), **{**sizes, **keys})


def value_model(folder: Path, kind: str, **keys: Any) -> ValueModel:
    """Return a tiny model whose heads say something: their last layers, which begin as 0, are random."""
    torch.manual_seed(0)
    model = get_model(value_config(folder, kind, **keys))
    assert isinstance(model, ValueModel)
    with torch.no_grad():
        for member in model.members:
            torch.nn.init.normal_(list(member.head.parameters())[-2])  # type: ignore[operator, union-attr]
    return model


def seen(count: int = 3, *, frames: int = 1, size: int = 16) -> list[dict[str, torch.Tensor]]:
    """Return images of samples, all different."""
    generator = torch.Generator().manual_seed(0)
    return [
        {"main_images": torch.randint(256, (count, size, size, 3), dtype=torch.uint8, generator=generator)}
        for _ in range(frames)
    ]
