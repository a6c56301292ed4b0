"""Task descriptions as token ids, in the words that a model was trained with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from rlinf.errors import ConfigError
from rlinf.utils.optional import require

_EMPTY_WORD = "▁"
"""Llama's token of a space with nothing behind it, number 29871, which stands before the first action token."""


def openvla_prompt(task: str) -> str:
    """Return the prompt of OpenVLA."""
    return f"In: What action should the robot take to {task.lower()}?\nOut:"


class OpenVLAPrompts:
    """Tokenizes prompts; each sentence once.

    The first token is the beginning of the sequence, behind which the images stand. Padding follows it, so that the
    last word is next to the first action.

    Args:
        folder: Of the checkpoint, with its tokenizer.
        length: Tokens of a padded prompt (``L``).
    """

    def __init__(self, folder: Path, length: int) -> None:
        transformers = require("transformers", needed_by="actor.model.model_type")
        self._tokenizer: Any = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
        self._length = length
        self._known: dict[str, torch.Tensor] = {}
        self.eos_token_id: int = self._tokenizer.eos_token_id
        self._empty_word: int = self._tokenizer.convert_tokens_to_ids(_EMPTY_WORD)

    def encode(self, tasks: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the padded prompts of ``B`` tasks: ids int32 [B, L], and where there are tokens, bool [B, L].

        Raises:
            ConfigError: A prompt is longer than ``max_prompt_length``.
        """
        rows = [self._ids(task) for task in tasks]
        ids = torch.zeros(len(rows), self._length, dtype=torch.int32)
        mask = torch.zeros(len(rows), self._length, dtype=torch.bool)
        for row, tokens in enumerate(rows):
            words = len(tokens) - 1
            for target, source in ((ids, tokens), (mask, torch.ones_like(tokens, dtype=torch.bool))):
                target[row, 0] = source[0]
                target[row, self._length - words :] = source[1:]
        return ids, mask

    def _ids(self, task: str) -> torch.Tensor:
        if task not in self._known:
            ids: list[int] = self._tokenizer(openvla_prompt(task)).input_ids
            if ids[-1] != self._empty_word:
                ids.append(self._empty_word)
            if len(ids) > self._length:
                raise ConfigError(
                    f"actor.model.max_prompt_length: received {self._length}; the prompt of '{task}' has {len(ids)} "
                    f"tokens. Set it to {len(ids)} or more."
                )
            self._known[task] = torch.tensor(ids, dtype=torch.int32)
        return self._known[task]
