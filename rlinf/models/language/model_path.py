"""Where the folder of a language model is, found without loading anything."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rlinf.errors import ConfigError
from rlinf.utils.optional import require

_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]
"""What engines and tokenizers read; checkpoints on the Hub often hold the weights a second time, in other formats."""
TOKENIZER_FILES = [pattern for pattern in _FILES if pattern != "*.safetensors"]
"""What is read of a model whose weights another one holds."""
_INSTALL = "pip install 'rlinf[reasoning]'"


def require_model_path(path: str) -> None:
    """Look whether a model can be had.

    Args:
        path: ``actor.model.model_path``.

    Raises:
        ConfigError: There is no such folder, and it is no name on the Hub or the Hub must not be queried.
    """
    if Path(path).expanduser().is_dir():
        return
    is_offline = os.environ.get("HF_HUB_OFFLINE", "").lower() in {"1", "on", "yes", "true"}
    is_name = path.count("/") == 1 and not path.startswith((".", "/", "~"))
    if is_offline or not is_name:
        where = "and HF_HUB_OFFLINE forbids to look for it on the Hub" if is_name else "and it is no name on the Hub"
        raise ConfigError(
            f"actor.model.model_path: there is no folder '{path}' ({where}). Download the model first, for example "
            "with 'hf download Qwen/Qwen2.5-1.5B-Instruct --local-dir models/qwen2.5-1.5b', and give that folder; or "
            "make it, where the comment at the top of the recipe says how."
        )


def find_model_folder(path: str, *, key: str = "actor.model.model_path", files: Sequence[str] = _FILES) -> Path:
    """Return the folder of a model, which is downloaded first if it is given by its name on the Hub.

    Generation engines read files of it. What the Hub's cache holds already is not downloaded again.

    Args:
        path: What the recipe says.
        key: Where it says so, for messages.
        files: Patterns of what is downloaded.

    Raises:
        ConfigError: There is no such folder, and nothing of that name on the Hub or, offline, in its cache.
        MissingPackageError: huggingface_hub is not installed.
    """
    folder = Path(path).expanduser()
    if folder.is_dir():
        return folder
    hub = require("huggingface_hub", install=_INSTALL, needed_by="a model by its name on the Hub")
    try:
        return Path(hub.snapshot_download(path, allow_patterns=list(files)))
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"{key}: there is no folder '{path}', and it cannot be had from the Hub: {reason} "
            "Download the model first, and give its folder."
        ) from error
