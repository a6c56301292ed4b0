"""Inference backends of embodied policies (``rollout.rollout_backend``), and the precisions that recipes name."""

from __future__ import annotations

import os
import shutil

import torch

from rlinf.config.schema.base import Precision
from rlinf.config.schema.lora_keys import LoRAKeys
from rlinf.config.schema.model import ModelConfig
from rlinf.config.schema.train import RolloutConfig
from rlinf.errors import ConfigError
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


def compile_layers(policy: BasePolicy, cfg: RolloutConfig) -> None:
    """Have the policy's layers compiled, or replayed as CUDA graphs, as the keys say; they are when first called.

    Layers of a kind share what is compiled, and parameters are its inputs: weights may be written at any time.

    Args:
        policy: A policy for inference, on its device.
        cfg: The ``rollout`` section.

    Raises:
        ConfigError: There is no GPU, or no compiler.
    """
    if cfg.enable_cuda_graph and policy.device.type != "cuda":
        raise ConfigError(
            f"rollout.enable_cuda_graph: received true; the rollout acts on {policy.device}, and graphs need a GPU. "
            "Place it on one, or set rollout.enable_cuda_graph=false."
        )
    if cfg.enable_torch_compile and policy.device.type == "cpu" and not _has_compiler():
        raise ConfigError(
            "rollout.enable_torch_compile: received true; on a CPU it needs a C++ compiler, and there is none. Install "
            "one (apt-get install g++), or set rollout.enable_torch_compile=false."
        )
    if not (cfg.enable_torch_compile or cfg.enable_cuda_graph):
        return
    backend = "inductor" if cfg.enable_torch_compile else "cudagraphs"
    mode = "reduce-overhead" if cfg.enable_torch_compile and cfg.enable_cuda_graph else None
    for layer in policy.recompute_units():
        layer.compile(backend=backend, mode=mode)


def _has_compiler() -> bool:
    names = (os.environ.get("CXX", "g++"), "g++", "clang++")
    return any(shutil.which(name) for name in names)
