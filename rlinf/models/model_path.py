"""Whether the folder of a language model exists, found without loading anything."""

from __future__ import annotations

import os
from pathlib import Path

from rlinf.errors import ConfigError


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
