"""Small flow policies."""

from typing import Any

import torch

from rlinf.config.schema.model import FlowPolicyConfig
from rlinf.models import get_model
from rlinf.models.trainable import TrainableModel

ROWS, CHUNK, DIM, STEPS = 5, 3, 2, 4


def build(**keys: str | float | list[int] | bool) -> TrainableModel:
    torch.manual_seed(0)
    keys = {"obs_dim": 6, "action_dim": DIM, "num_action_chunks": CHUNK, "hidden_dims": [16], **keys}
    return get_model(FlowPolicyConfig(model_type="flow_policy", **keys))


def observations(rows: int = ROWS) -> dict[str, torch.Tensor]:
    return {"states": torch.randn(rows, 6, generator=torch.Generator().manual_seed(1))}


def act(policy: TrainableModel, mode: str = "train", seed: int = 2) -> Any:
    return policy.predict_action_batch(observations(), mode=mode, generator=torch.Generator().manual_seed(seed))


def shake(policy: TrainableModel) -> TrainableModel:
    """Move the weights away from their start, at which velocities are almost 0."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return policy
