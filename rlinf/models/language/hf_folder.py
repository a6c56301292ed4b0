"""Language models in Hugging Face's layout: what transformers and the serving engines load."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from rlinf.models.files.tensor_writer import write_tensor_files
from rlinf.models.language.language_model import LanguageModel
from rlinf.utils.optional import require

_INSTALL = "pip install 'rlinf[reasoning]'"


def write_hf_folder(
    folder: Path, model: LanguageModel, weights: Iterator[tuple[str, torch.Tensor]], *, dtype: torch.dtype
) -> None:
    """Write weights (one at a time), configuration and tokenizer, so that the folder can be ``actor.model.model_path``.

    Args:
        folder: Where to; made if it does not exist.
        model: Says what the weights belong to.
        weights: Whole tensors by the names of a Hugging Face checkpoint (``TrainEngine.export_weights``).
        dtype: Of the floating-point weights in the files.

    Raises:
        MissingPackageError: transformers is not installed.
    """
    transformers = require("transformers", install=_INSTALL, needed_by="a checkpoint in Hugging Face's layout")
    described = model.export(lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype, device="meta"))
    write_tensor_files(folder, list(_cast(described, dtype)), _cast(weights, dtype))
    config: Any = copy.deepcopy(model.hf_config)
    config.dtype = dtype
    config.save_pretrained(folder)
    source = model.cfg.model_path
    transformers.AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    # Which tokens end an answer: not every model has such a file.
    if transformers.utils.cached_file(source, "generation_config.json", _raise_exceptions_for_missing_entries=False):
        transformers.GenerationConfig.from_pretrained(source).save_pretrained(folder)


def _cast(weights: Iterator[tuple[str, torch.Tensor]], dtype: torch.dtype) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in weights:
        yield name, tensor.to(dtype) if tensor.is_floating_point() else tensor
