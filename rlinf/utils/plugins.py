"""Loads plug-ins: Python code from outside that registers its own environments, models or algorithms."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import threading
from collections.abc import Callable

from rlinf.errors import ConfigError

MODULE_VARIABLE = "RLINF_EXT_MODULE"
ENTRY_POINT_GROUP = "rlinf.plugins"

_lock = threading.RLock()
_loaded: set[str] = set()


def load_plugins() -> None:
    """Load the module that ``RLINF_EXT_MODULE`` names and all entry points of the group ``rlinf.plugins``.

    Each has a function ``register()`` (an entry point may also name the function itself), which is called once per
    process, however often this is called.

    Raises:
        ConfigError: A plug-in cannot be imported, has no ``register()``, or its ``register()`` fails.
    """
    with _lock:
        module = os.environ.get(MODULE_VARIABLE, "").strip()
        if module:
            _load_once(f"{MODULE_VARIABLE}={module}", lambda: importlib.import_module(module))
        for entry in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
            _load_once(f"the plug-in '{entry.name}' ({entry.value})", entry.load)


def _load_once(source: str, load: Callable[[], object]) -> None:
    if source in _loaded:
        return
    try:
        plugin = load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"{source}: cannot be imported: {error}. Install it, put its folder on PYTHONPATH, or unset it."
        ) from error
    register = getattr(plugin, "register", plugin)
    if not callable(register):
        raise ConfigError(f"{source}: has no function register(). Define one that registers what the plug-in adds.")
    try:
        register()
    except Exception as error:
        raise ConfigError(f"{source}: its register() failed: {type(error).__name__}: {error}") from error
    _loaded.add(source)
