"""Language models in Hugging Face's layout: what transformers and the serving engines load."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from rlinf.models.language_model import LanguageModel
from rlinf.utils.optional import require

_INSTALL = "pip install 'rlinf[reasoning]'"


def write_hf_folder(
    folder: Path, model: LanguageModel, weights: Iterator[tuple[str, torch.Tensor]], *, dtype: torch.dtype
) -> None:
    """Write weights, configuration and tokenizer, so that the folder can be ``actor.model.model_path``.

    Args:
        folder: Where to; made if it does not exist.
        model: Says what the weights belong to.
        weights: Whole tensors by the names of a Hugging Face checkpoint (``TrainEngine.export_weights``).
        dtype: Of the floating-point weights in the files.

    Raises:
        MissingPackageError: transformers is not installed.
    """
    hub = require("huggingface_hub", install=_INSTALL, needed_by="a checkpoint in Hugging Face's layout")
    transformers = require("transformers", install=_INSTALL, needed_by="a checkpoint in Hugging Face's layout")
    folder.mkdir(parents=True, exist_ok=True)
    state = {name: _to_host(tensor, dtype) for name, tensor in weights}
    hub.save_torch_state_dict(state, folder)
    config: Any = copy.deepcopy(model.hf_config)
    config.dtype = dtype
    config.save_pretrained(folder)
    source = model.cfg.model_path
    transformers.AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    # Which tokens end an answer: not every model has such a file.
    if transformers.utils.cached_file(source, "generation_config.json", _raise_exceptions_for_missing_entries=False):
        transformers.GenerationConfig.from_pretrained(source).save_pretrained(folder)


def _to_host(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.to("cpu", dtype if tensor.is_floating_point() else tensor.dtype).contiguous()
