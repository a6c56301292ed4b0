"""What a folder with a model in Hugging Face's layout says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import safe_open

from rlinf.errors import EngineError
from rlinf.hybrid_engines.generation.token_sequence import Decode
from rlinf.utils.optional import require


def read_model_config(model_path: Path) -> dict[str, Any]:
    """Return a model folder's ``config.json``.

    Raises:
        EngineError: There is none.
    """
    file = model_path / "config.json"
    if not file.is_file():
        raise EngineError(f"'{model_path}' is no folder with a model in Hugging Face's layout: it has no config.json.")
    return dict(json.loads(file.read_text(encoding="utf-8")))


def read_end_ids(model_path: Path) -> frozenset[int]:
    """Return the model's own end tokens: those of its generation settings, else of its configuration."""
    file = model_path / "generation_config.json"
    settings = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    ends = settings.get("eos_token_id")
    if ends is None:
        ends = read_model_config(model_path).get("eos_token_id")
    if ends is None:
        return frozenset()
    return frozenset(ends) if isinstance(ends, list) else frozenset([ends])


def load_decoder(model_path: Path) -> Decode:
    """Return what turns tokens into text, with the tokenizer in a model's folder.

    Raises:
        MissingPackageError: transformers is not installed.
    """
    transformers = require("transformers", needed_by="A stop string")
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_path)

    def decode(token_ids: list[int]) -> str:
        return str(tokenizer.decode(token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    return decode


def read_weight_names(model_path: Path) -> frozenset[str]:
    """Return the names of the weights in a model's folder; tied ones have one name."""
    names: set[str] = set()
    for file in model_path.glob("*.safetensors"):
        with safe_open(file, framework="pt") as weights:
            names.update(weights.keys())
    return frozenset(names)


def read_weight_shapes(model_path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights in a model's folder, by name."""
    shapes: dict[str, tuple[int, ...]] = {}
    for file in model_path.glob("*.safetensors"):
        with safe_open(file, framework="pt") as weights:
            shapes.update({name: tuple(weights.get_slice(name).get_shape()) for name in weights.keys()})  # noqa: SIM118
    return shapes
