"""Differences of weights on the disk, and of what models compute with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rlinf.errors import CheckpointError
from rlinf.hybrid_engines.train.weight_files import open_weights
from rlinf.utils.optional import require

_INSTALL = "pip install 'rlinf[reasoning]'"


@dataclass(frozen=True, slots=True)
class WeightDifferences:
    """Differences of two sets of weights.

    Attributes:
        differences: Largest difference of two entries, by the name of their tensor; NaN counts as infinity unless both
            are.
        problems: What cannot be compared, one sentence each: tensors of one side only, other shapes.
    """

    differences: dict[str, float]
    problems: list[str]

    @property
    def largest(self) -> float:
        """The largest of the differences."""
        return max(self.differences.values(), default=0.0)


def compare_weights(first: Path, second: Path) -> WeightDifferences:
    """Compare weights tensor by tensor, two of which are in memory at a time.

    Args:
        first: Checkpoint, Hugging Face folder or file.
        second: Likewise.

    Raises:
        CheckpointError: One of them holds no weights.
    """
    one, other = open_weights(first), open_weights(second)
    problems = [f"Only in {first}: {name}" for name in sorted(one.described.keys() - other.described.keys())]
    problems += [f"Only in {second}: {name}" for name in sorted(other.described.keys() - one.described.keys())]
    differences = {}
    for name in (name for name in one.described if name in other.described):
        shapes = one.described[name].shape, other.described[name].shape
        if shapes[0] != shapes[1]:
            problems.append(f"{name} has shape {tuple(shapes[0])} in {first} and {tuple(shapes[1])} in {second}")
        else:
            differences[name] = _largest_difference(one.read(name), other.read(name))
    return WeightDifferences(differences, problems)


def compare_logprobs(first: Path, second: Path, texts: Sequence[str]) -> float:
    """Return the largest difference of log-probabilities of the texts' tokens; one model is in memory at a time.

    Args:
        first: Hugging Face folder, whose tokenizer is used.
        second: Hugging Face folder.
        texts: Empty ones, and those of one token, have nothing to compare.

    Raises:
        CheckpointError: One of them is no folder of a language model; ``rlinf convert`` makes one of a checkpoint.
        MissingPackageError: transformers is not installed.
    """
    transformers = require("transformers", install=_INSTALL, needed_by="the comparison of log-probabilities")
    for folder in (first, second):
        if not (folder / "config.json").is_file():
            raise CheckpointError(f"'{folder}' is no Hugging Face folder: convert it with 'rlinf convert' first.")
    tokenizer = transformers.AutoTokenizer.from_pretrained(first)
    tokens = [torch.tensor([ids]) for ids in (tokenizer.encode(text) for text in texts) if len(ids) > 1]
    if not tokens:
        raise CheckpointError("No text has two tokens or more; give a file with a prompt on each line.")
    one, other = (_logprobs(transformers, folder, tokens) for folder in (first, second))
    return max(_largest_difference(a, b) for a, b in zip(one, other, strict=True))


@torch.no_grad()
def _logprobs(transformers: Any, folder: Path, tokens: list[torch.Tensor]) -> list[torch.Tensor]:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return [
        model(ids).logits[0, :-1].log_softmax(-1).gather(-1, ids[0, 1:].unsqueeze(-1)).squeeze(-1) for ids in tokens
    ]


def _largest_difference(one: torch.Tensor, other: torch.Tensor) -> float:
    if one.numel() == 0:
        return 0.0
    difference = (one.double() - other.double()).abs()
    # Equal infinities, and NaN on both sides, are no difference.
    same = (one == other) | (one.isnan() & other.isnan())
    largest = float(torch.where(same, 0.0, difference).max())
    return math.inf if math.isnan(largest) else largest
