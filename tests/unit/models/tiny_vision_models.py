"""Vision-language models of half a million parameters, pictures, and what transformers says of one sequence alone."""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageDraw

from examples.reasoning.make_tiny_vision_model import make_tiny_vision_model
from rlinf.config.schema.model import VisionLMConfig
from rlinf.data.prompt_images import ImageProcessor, Images

__all__ = ["make_tiny_vision_model", "picture", "stock_logits", "stock_logprobs", "vision_config"]


def picture(count: int, *, size: tuple[int, int] = (112, 112), seed: int = 0) -> bytes:
    """Return a PNG with some squares."""
    chance = random.Random(f"{count}-{seed}")
    image = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(image)
    for _ in range(count):
        x, y = (chance.randrange(side - 14) for side in size)
        pen.rectangle((x, y, x + 12, y + 12), fill="black")
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()


def vision_config(folder: Path, **keys: Any) -> VisionLMConfig:
    """Return the ``actor.model`` section of the model in ``folder``."""
    return VisionLMConfig(**{"model_type": "vision_lm", "model_path": str(folder), **keys})


def stock_logits(model: Any, processor: ImageProcessor, token_ids: Sequence[int], images: Images) -> torch.Tensor:
    """Return logits [L, V] of one sequence by transformers' own code, positions of images among it."""
    ids = torch.tensor([list(token_ids)])
    seen: dict[str, Any] = {}
    if images:
        patches = [processor.patches(image) for image in images]
        seen["pixel_values"] = torch.cat([each.pixels for each in patches])
        seen["image_grid_thw"] = torch.tensor([each.grid for each in patches])
        seen["mm_token_type_ids"] = (ids == processor.token_id).int()
    model.model.rope_deltas = None
    logits: torch.Tensor = model(input_ids=ids, **seen).logits[0]
    return logits


def stock_logprobs(
    model: Any, processor: ImageProcessor, prompt: Sequence[int], images: Images, response: Sequence[int]
) -> torch.Tensor:
    """Return log-probabilities [L] of a response."""
    logits = stock_logits(model, processor, [*prompt, *response], images)
    rows = logits[len(prompt) - 1 : -1].log_softmax(-1)
    return rows.gather(1, torch.tensor(list(response)).unsqueeze(1)).squeeze(1)
