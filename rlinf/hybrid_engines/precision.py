"""Precisions as recipes name them."""

from __future__ import annotations

import torch

from rlinf.config.schema.base import Precision

DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
