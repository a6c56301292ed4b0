"""Recipes as typed dataclasses: the schema, parsing, offline validation and where recipes are found.

Imports ``rlinf.placement`` and what is above it; neither torch, Ray nor a simulator. A new environment, model,
advantage or loss adds its dataclass and its registration to a file in ``schema/``; a new rule about how sections fit
together goes into ``checks/``, one of a plug-in's through ``validate.register_rule``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlinf.config.build import build_config, to_dict
    from rlinf.config.recipes import list_recipes, load_recipe
    from rlinf.config.schema.root import RLinfConfig
    from rlinf.config.supported import SupportedModel, get_supported_model
    from rlinf.config.validate import validate_cfg

__all__ = [
    "RLinfConfig",
    "SupportedModel",
    "build_config",
    "get_supported_model",
    "list_recipes",
    "load_recipe",
    "to_dict",
    "validate_cfg",
]

_EXPORTS = {
    "RLinfConfig": "rlinf.config.schema.root",
    "SupportedModel": "rlinf.config.supported",
    "build_config": "rlinf.config.build",
    "get_supported_model": "rlinf.config.supported",
    "list_recipes": "rlinf.config.recipes",
    "load_recipe": "rlinf.config.recipes",
    "to_dict": "rlinf.config.build",
    "validate_cfg": "rlinf.config.validate",
}


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'rlinf.config' has no attribute '{name}'")
    return getattr(importlib.import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
