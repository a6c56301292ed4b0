"""Small policies on states."""

import torch

from rlinf.config.schema.model import MLPPolicyConfig
from rlinf.models import get_model
from rlinf.models.trainable import TrainableModel


def build(**keys: float | bool) -> TrainableModel:
    torch.manual_seed(0)
    cfg = MLPPolicyConfig(model_type="mlp_policy", obs_dim=3, action_dim=2, hidden_dims=[8], **keys)
    return get_model(cfg)
