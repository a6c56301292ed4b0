"""Functions that recipes name as ``package.module:function``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from rlinf.errors import ConfigError


def import_function(path: str, key: str) -> Callable[..., Any]:
    """Import a function of the user's.

    Args:
        path: ``package.module:function``.
        key: The recipe's key that names it, for messages.

    Raises:
        ConfigError: There is no such function.
    """
    module, _, name = path.partition(":")
    where = f"{key}: received '{path}'"
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{where}; it cannot be imported: {error}. Write package.module:function, with the package installed or "
            "its folder on PYTHONPATH."
        ) from error
    if not callable(function):
        raise ConfigError(f"{where}; it is no function but a {type(function).__name__}. Name a function.")
    return function  # type: ignore[no-any-return]
