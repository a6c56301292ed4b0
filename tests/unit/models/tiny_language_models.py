"""Language models of a few thousand parameters, as folders that transformers loads."""

from pathlib import Path
from typing import Any

import torch

from rlinf.config.schema.model import CausalLMConfig


def save_tiny(folder: Path, *, seed: int = 0, **config: Any) -> Any:
    """Write a random Qwen2 model to ``folder`` and return it."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2}
    model = Qwen2ForCausalLM(Qwen2Config(**{"vocab_size": 40, "num_hidden_layers": 2, **sizes, **config})).eval()
    with torch.no_grad():
        # Transformers starts so small that every token is as likely as any other, which would hide faults.
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.3)
    model.save_pretrained(folder)
    return model


def tiny_config(folder: Path, **keys: Any) -> CausalLMConfig:
    """Return the ``actor.model`` section of the model in ``folder``."""
    return CausalLMConfig(**{"model_type": "causal_lm", "model_path": str(folder), **keys})
