"""What the language model of the Qwen-VL families reads where a prompt has images: features and positions.

Features come from the vision tower; positions are those of M-RoPE (Qwen2-VL, https://arxiv.org/abs/2409.12191,
section 2.1): tokens of an image have its time, row and column, and text goes on behind the largest of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from rlinf.data.prompt_images import ImageProcessor, Images
from rlinf.errors import AlgorithmError


class ImageTokens(NamedTuple):
    """Where the images of a sequence lie in it.

    Attributes:
        rows: int64 [L]; row of each token among the features of all images, -1 for text.
        positions: int64 [3, L]; M-RoPE positions by time, height and width.
    """

    rows: torch.Tensor
    positions: torch.Tensor


@dataclass(frozen=True, slots=True)
class ImageInputs:
    """The images of some sequences, each different one once, and where they lie in them.

    Attributes:
        pixels: float32 [patches, values]; see ``ImagePatches``. A blank image where there is none, so that the vision
            tower runs in every pass: under sharding all ranks take part in its collectives.
        grids: int64 [images, 3].
        sequences: One for each sequence.
    """

    pixels: torch.Tensor
    grids: torch.Tensor
    sequences: tuple[ImageTokens, ...]

    @classmethod
    def of(cls, sequences: Sequence[torch.Tensor], images: Sequence[Images], processor: ImageProcessor) -> ImageInputs:
        """Lay out images.

        Args:
            sequences: Token ids [L] of each sequence, on the host. Placeholders behind those of the images, which a
                model has sampled itself, are text.
            images: The images of each.
            processor: Cuts them into patches.

        Raises:
            AlgorithmError: A sequence has fewer placeholders than its images have tokens.
        """
        unique = {image: processor.patches(image) for image in dict.fromkeys(i for each in images for i in each)}
        starts: dict[bytes, int] = {}
        end = 0
        for image, patches in unique.items():
            starts[image] = end
            end += patches.num_tokens
        merge = processor.merge_size
        found = []
        for tokens, own in zip(sequences, images, strict=True):
            grids = [(unique[i].grid[1] // merge, unique[i].grid[2] // merge) for i in own]
            found.append(_image_tokens(tokens == processor.token_id, grids, [starts[i] for i in own]))
        blank = torch.zeros(merge * merge, processor.num_values)
        return cls(
            pixels=torch.cat([patches.pixels for patches in unique.values()]) if unique else blank,
            grids=torch.tensor([patches.grid for patches in unique.values()] or [(1, merge, merge)]),
            sequences=tuple(found),
        )

    def embed(self, model: Any, token_ids: torch.Tensor, rows: torch.Tensor) -> dict[str, Any]:
        """Return the arguments by which the language model of a vision-language model takes embedded tokens.

        Args:
            model: With ``visual`` and ``language_model``, of transformers.
            token_ids: int64 [N, T].
            rows: int64 [N, T]; see ``ImageTokens``.
        """
        device = token_ids.device
        embedded = model.get_input_embeddings()(token_ids)
        seen = model.visual(self.pixels.to(device, embedded.dtype), grid_thw=self.grids.to(device))
        is_image, index = rows >= 0, rows.clamp(min=0)
        features = seen.pooler_output.to(embedded.dtype)
        arguments: dict[str, Any] = {
            "inputs_embeds": torch.where(is_image.unsqueeze(-1), features[index], embedded),
        }
        levels = getattr(seen, "deepstack_features", None)
        if levels:  # Qwen3-VL adds features of earlier layers of the tower to its first layers
            arguments["visual_pos_masks"] = is_image
            arguments["deepstack_visual_embeds"] = [level[index[is_image]] for level in levels]
        return arguments


def _image_tokens(is_placeholder: torch.Tensor, grids: Sequence[tuple[int, int]], starts: Sequence[int]) -> ImageTokens:
    """Return rows and positions of a sequence with images of some height and width in tokens."""
    length = len(is_placeholder)
    rows = torch.full((length,), -1, dtype=torch.int64)
    needed = sum(height * width for height, width in grids)
    places = is_placeholder.nonzero().squeeze(1)
    if len(places) < needed:
        raise AlgorithmError(
            f"ImageInputs: a sequence has {len(places)} image placeholders, and its images have {needed} tokens. Give "
            "prompts whose placeholders ImageProcessor.expand has expanded."
        )
    parts: list[torch.Tensor] = []
    at = position = used = 0
    for (height, width), start in zip(grids, starts, strict=True):
        begin, count = int(places[used]), height * width
        used += count
        parts.append(torch.arange(begin - at).expand(3, -1) + position)
        position += begin - at
        where = torch.arange(count)
        parts.append(torch.stack([torch.zeros_like(where), where // width, where % width]) + position)
        rows[begin : begin + count] = where + start
        at, position = begin + count, position + max(height, width)
    parts.append(torch.arange(length - at).expand(3, -1) + position)
    return ImageTokens(rows, torch.cat(parts, dim=1))
