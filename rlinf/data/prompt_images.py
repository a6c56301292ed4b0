"""Images of prompts: read from rows, cut into patches, and counted in tokens."""

from __future__ import annotations

import io
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch

from rlinf.errors import DatasetError
from rlinf.utils.optional import require

Images: TypeAlias = "tuple[bytes, ...]"
"""Encoded image files (PNG, JPEG ...) of a prompt, in the order of their placeholders."""

_MAX_CACHED_BYTES = 256 << 20
"""Patches that a process keeps: the responses of a group, and the passes of a step, read the same images."""


class ImagePatches(NamedTuple):
    """An image as the vision tower of the Qwen-VL families reads it.

    Attributes:
        pixels: float32 [patches, values]; normalised.
        grid: Patches over time (1), height and width.
        num_tokens: Tokens that the image takes in the language model.
    """

    pixels: torch.Tensor
    grid: tuple[int, int, int]
    num_tokens: int


class ImageProcessor:
    """Cuts images into patches and expands their placeholders, as the model's own image processor says.

    Args:
        model_path: Folder of a checkpoint of the Qwen2.5-VL or Qwen3-VL family.

    Attributes:
        token_id: The placeholder's token.
        merge_size: Patches along each side that make one token.
        num_values: Values of a patch.

    Raises:
        DatasetError: The folder has no image processor, or its model takes no images.
    """

    def __init__(self, model_path: str) -> None:
        transformers = require("transformers", needed_by="model_type=vision_lm")
        require("PIL", needed_by="model_type=vision_lm")
        settings = Path(model_path) / "config.json"
        config = json.loads(settings.read_text(encoding="utf-8")) if settings.is_file() else {}
        if "image_token_id" not in config or "vision_config" not in config:
            raise DatasetError(
                f"actor.model.model_path: '{model_path}' is no folder with a model that reads images. Give a "
                "checkpoint of the Qwen2.5-VL or Qwen3-VL family, or remove data.image_keys."
            )
        self.token_id = int(config["image_token_id"])
        try:
            self._processor = transformers.AutoImageProcessor.from_pretrained(model_path, backend="pil")
        except (OSError, ValueError) as error:
            raise DatasetError(
                f"actor.model.model_path: no image processor can be loaded from '{model_path}': {error} Give a folder "
                "that holds preprocessor_config.json."
            ) from error
        self.merge_size = int(self._processor.merge_size)
        channels = len(self._processor.image_mean)
        self.num_values = channels * int(self._processor.temporal_patch_size) * int(self._processor.patch_size) ** 2
        self._cached: OrderedDict[bytes, ImagePatches] = OrderedDict()
        self._num_cached_bytes = 0

    def patches(self, image: bytes) -> ImagePatches:
        """Return an image's patches.

        Raises:
            DatasetError: The bytes are no image.
        """
        found = self._cached.get(image)
        if found is None:
            found = self._cut(image)
            self._cached[image] = found
            self._num_cached_bytes += found.pixels.nbytes
        self._cached.move_to_end(image)
        while self._num_cached_bytes > _MAX_CACHED_BYTES and len(self._cached) > 1:
            self._num_cached_bytes -= self._cached.popitem(last=False)[1].pixels.nbytes
        return found

    def expand(self, token_ids: Sequence[int], images: Images) -> tuple[int, ...]:
        """Return tokens with each placeholder repeated as often as its image has tokens.

        Args:
            token_ids: [P]; one placeholder for each image.
            images: The images.

        Raises:
            DatasetError: There are more or fewer placeholders than images, or the bytes are no image.
        """
        count = sum(token == self.token_id for token in token_ids)
        if count != len(images):
            raise DatasetError(
                f"the prompt has {count} image placeholder(s) (token {self.token_id}) for {len(images)} image(s). Set "
                "data.apply_chat_template=true with a chat template that writes one for each, or write them into the "
                "prompt."
            )
        sizes = (self.patches(image).num_tokens for image in images)
        return tuple(t for token in token_ids for t in [token] * (next(sizes) if token == self.token_id else 1))

    def _cut(self, image: bytes) -> ImagePatches:
        pil = require("PIL.Image", needed_by="model_type=vision_lm")
        try:
            with pil.open(io.BytesIO(image)) as opened:
                decoded = opened.convert("RGB")
        except OSError as error:
            raise DatasetError(f"an image of {len(image)} bytes cannot be read: {error}. Remove the row.") from error
        found = self._processor(images=[decoded], return_tensors="pt")
        time, height, width = (int(size) for size in found["image_grid_thw"][0])
        num_tokens = time * height * width // self.merge_size**2
        return ImagePatches(found["pixel_values"].float(), (time, height, width), num_tokens)


def as_image_bytes(value: Any) -> Images:
    """Return what a column holds as images: files, their paths, what ``datasets`` decodes, or a list of these.

    Raises:
        DatasetError: It is something else, or there is no such file.
    """
    if isinstance(value, bytes):
        return (value,)
    if isinstance(value, str):
        file = Path(value).expanduser()
        if not file.is_file():
            raise DatasetError(f"there is no image '{value}' (looked in {Path.cwd()}). Correct the path.")
        return (file.read_bytes(),)
    if isinstance(value, Mapping) and (value.get("bytes") or value.get("path")):
        return as_image_bytes(value.get("bytes") or value["path"])
    if isinstance(value, list):
        return tuple(image for each in value for image in as_image_bytes(each))
    if hasattr(value, "save"):  # an image of PIL, as ``datasets`` decodes a column of images
        buffer = io.BytesIO()
        value.save(buffer, format="PNG")
        return (buffer.getvalue(),)
    raise DatasetError(
        f"received {type(value).__name__}; allowed: the bytes of an image file, its path, a column of images of "
        "datasets, or a list of these. Choose another column."
    )
