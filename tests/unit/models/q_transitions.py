"""Policies with critics, and transitions."""

from typing import Any

import torch

from rlinf.config.schema.model import MLPPolicyConfig
from rlinf.models import get_model
from rlinf.models.trainable import TrainableModel

ROWS, CHUNK, DIM = 6, 3, 2


def policy(**keys: bool | float | str) -> TrainableModel:
    torch.manual_seed(0)
    cfg = MLPPolicyConfig(
        model_type="mlp_policy",
        obs_dim=5,
        action_dim=DIM,
        num_action_chunks=CHUNK,
        hidden_dims=[16, 8],
        add_q_head=True,
        **keys,
    )
    return get_model(cfg)


def normal(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def transitions() -> dict[str, Any]:
    return {
        "inputs": {"states": normal(1, ROWS, 5)},
        "action": normal(2, ROWS, CHUNK, DIM).tanh(),
        "next_inputs": {"states": normal(3, ROWS, 5) + 1.0},
        "noise": normal(4, ROWS, CHUNK, DIM),
    }
