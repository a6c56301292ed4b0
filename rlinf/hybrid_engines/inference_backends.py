"""Inference backends of embodied policies (``rollout.rollout_backend``), and the precisions that recipes name."""

from __future__ import annotations

import torch

from rlinf.config.schema.base import Precision
from rlinf.config.schema.lora_keys import LoRAKeys
from rlinf.config.schema.model import ModelConfig
from rlinf.models import get_policy
from rlinf.models.base_policy import BasePolicy

DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def build_torch_policy(cfg: ModelConfig, *, num_values: int, precision: Precision, device: torch.device) -> BasePolicy:
    """Build the policy's own PyTorch module for inference (``rollout_backend: huggingface``).

    Weights that are in files are not read: the actor sends its own before the first action, adapters added in.

    Args:
        cfg: The ``actor.model`` section.
        num_values: Values per observation.
        precision: Of the parameters; buffers keep theirs.
        device: Where to run.
    """
    if isinstance(cfg, LoRAKeys):
        cfg = cfg.without_adapters()
    model = get_policy(cfg, num_values=num_values, on_meta=True)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(DTYPES[precision])
    # It imports sharded training, which workers that train nothing do without.
    from rlinf.models.materialize import allocate

    allocate(model, device)
    return model.to(device).eval().requires_grad_(False)
