"""Policies on small images."""

from typing import Any

import torch

from rlinf.config.schema.model import CNNPolicyConfig, FlowPolicyConfig
from rlinf.models import get_model
from rlinf.models.trainable import TrainableModel

ROWS, DIM, SIZE = 4, 2, 20


def policy(**keys: int | bool | str | list[str]) -> TrainableModel:
    torch.manual_seed(0)
    defaults = {"image_keys": ["main_images", "wrist_images"], "image_size": [SIZE, 24], "obs_dim": 3, "latent_dim": 8}
    return get_model(CNNPolicyConfig(model_type="cnn_policy", action_dim=DIM, hidden_dims=[16], **{**defaults, **keys}))


def flow_policy(**keys: int | bool | str | list[str]) -> TrainableModel:
    torch.manual_seed(0)
    defaults = {"image_keys": ["main_images", "wrist_images"], "image_size": [SIZE, 24], "obs_dim": 3, "latent_dim": 8}
    flow = {"model_type": "flow_policy", "action_dim": DIM, "hidden_dims": [16], "noise_method": "flow_noise"}
    return get_model(FlowPolicyConfig(**{**flow, **defaults, **keys}))


def observations(seed: int = 1) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    images = {
        key: torch.randint(0, 256, (ROWS, SIZE, 24, 3), dtype=torch.uint8, generator=generator)
        for key in ("main_images", "wrist_images")
    }
    return {"states": torch.randn(ROWS, 3, generator=generator), **images, "task_descriptions": ["reach"] * ROWS}
