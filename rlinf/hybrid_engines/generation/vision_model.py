"""A vision-language model as the ``hf`` engine calls it: images with prompts, then one token for each sequence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from rlinf.data.messages.generation import GenerationRequest
from rlinf.data.prompt_images import ImageProcessor, Images
from rlinf.errors import DatasetError, EngineError
from rlinf.hybrid_engines.generation.token_sequence import TokenSequence
from rlinf.models.language.vision_inputs import ImageInputs


class VisionModel:
    """Computes logits of a model of the Qwen2.5-VL or Qwen3-VL family, by the trainer's code for images.

    Args:
        model: Of transformers.
        model_path: Its folder, which has the image processor.
    """

    def __init__(self, model: Any, model_path: Path) -> None:
        self._model = model
        self._processor = ImageProcessor(str(model_path))
        self._offsets: dict[int, int] = {}

    def check(self, request: GenerationRequest) -> None:
        """Refuse a request whose placeholders are not those of its images.

        Raises:
            EngineError: There are more or fewer, or an image cannot be read.
        """
        found = sum(token == self._processor.token_id for token in request.prompt_ids)
        try:
            needed = sum(self._processor.patches(image).num_tokens for image in request.images)
        except DatasetError as error:
            raise EngineError(f"Request '{request.request_id}': {error}") from error
        if found != needed:
            raise EngineError(
                f"Request '{request.request_id}': prompt_ids has {found} image placeholders, and its "
                f"{len(request.images)} image(s) have {needed} tokens. Expand the prompt with the model's image "
                "processor (data.image_keys)."
            )

    def prompt_hidden_states(
        self, token_ids: torch.Tensor, contexts: Sequence[tuple[tuple[int, ...], Images]], cache: Any
    ) -> torch.Tensor:
        """Return the last hidden states of prompts, [N, W, H], and fill a cache.

        Args:
            token_ids: int64 [N, W]; prompts, padded on the right.
            contexts: Tokens of each prompt, and its images.
            cache: Of transformers.
        """
        width, device = token_ids.shape[1], token_ids.device
        inputs = ImageInputs.of(
            [torch.tensor(ids) for ids, _ in contexts],
            [images for _, images in contexts],
            self._processor,
        )
        rows = torch.full(token_ids.shape, -1, dtype=torch.int64)
        positions = torch.zeros(3, *token_ids.shape, dtype=torch.int64)
        for number, found in enumerate(inputs.sequences):
            length = len(found.rows)
            rows[number, :length], positions[:, number, :length] = found.rows, found.positions
        assert width >= max(len(found.rows) for found in inputs.sequences)
        arguments = inputs.embed(self._model.model, token_ids, rows.to(device))
        output = self._model.model.language_model(
            position_ids=positions.to(device), past_key_values=cache, use_cache=True, **arguments
        )
        hidden: torch.Tensor = output.last_hidden_state
        return hidden

    def admit(self, sequences: Sequence[TokenSequence]) -> None:
        """Note how far the positions of each sequence lie from its numbers of tokens."""
        for sequence in sequences:
            sizes = [self._processor.patches(image) for image in sequence.images]
            merge = self._processor.merge_size
            self._offsets[sequence.key] = sum(max(size.grid[1:]) // merge - size.num_tokens for size in sizes)

    def forget(self, keys: Sequence[int]) -> None:
        """Forget sequences."""
        for key in keys:
            self._offsets.pop(key, None)

    def next_logits(
        self, sequences: Sequence[TokenSequence], positions: torch.Tensor, mask: torch.Tensor, cache: Any
    ) -> torch.Tensor:
        """Return the logits behind the newest token of each sequence, [N, V].

        Args:
            sequences: With one token at least.
            positions: int64 [N]; tokens of each before the newest.
            mask: [N, 1, 1, W]; added to the scores of cached tokens.
            cache: With the tokens before.
        """
        device = positions.device
        offsets = torch.tensor([self._offsets[sequence.key] for sequence in sequences], device=device)
        output = self._model.model.language_model(
            input_ids=torch.tensor([[sequence.token_ids[-1]] for sequence in sequences], device=device),
            attention_mask=mask,
            position_ids=(positions + offsets)[None, :, None].expand(3, -1, -1),
            past_key_values=cache,
            use_cache=True,
        )
        return self.logits(output.last_hidden_state[:, -1])

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the logits [N, V] of hidden states [N, H]."""
        found: torch.Tensor = self._model.lm_head(hidden)
        return found
