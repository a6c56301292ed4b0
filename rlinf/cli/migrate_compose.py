"""Finds recipes of the published system and composes them as its scripts do, without their environment variables."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlinf.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig

_RECIPE_KEYS = frozenset({"runner", "cluster", "defaults", "hydra", "algorithm", "data"})
"""A file with one of these at its top is a recipe; presets have none."""

_RESOLVERS: dict[str, Callable[..., Any]] = {
    "add": lambda *numbers: sum(numbers),
    "int_div": lambda number, divisor: number // divisor,
    "multiply": lambda number, factor: number * factor,
    "not": lambda value: not value,
    "subtract": lambda number, other: number - other,
}
"""Functions that the published system registers for its recipes."""


def find_recipes(path: Path) -> list[Path]:
    """Return the recipes at a path: the file itself, or those of a folder and the folders below it.

    Raises:
        ConfigError: Nothing is there, or no recipe.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ConfigError(f"migrate: received '{path}', which is not there; give a recipe's file, or a folder of them.")
    found = [file for file in sorted(path.rglob("*.yaml")) if _is_recipe(file)]
    if not found:
        raise ConfigError(f"migrate: received '{path}', which holds no recipe; give the folder that does.")
    return found


def _is_recipe(file: Path) -> bool:
    import yaml

    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        # It is one that cannot be read, which is reported when it is composed.
        return True
    return isinstance(content, dict) and bool(_RECIPE_KEYS & set(content))


def compose_published(file: Path) -> dict[str, Any]:
    """Compose a recipe and its presets, interpolations resolved where that is possible.

    Presets are looked for next to the recipe, in the folders above it, and in the ``config`` folders of the other
    examples. An interpolation that cannot be resolved, of an environment variable for example, stays as it is.

    Args:
        file: The recipe.

    Returns:
        The recipe as nested mappings.

    Raises:
        ConfigError: A preset is missing, or the file is no YAML.
    """
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    folder = file.resolve().parent
    searched = json.dumps([f"file://{path}" for path in _preset_folders(folder)], ensure_ascii=False)
    try:
        with _resolvers(), warnings.catch_warnings():
            # Hydra warns of each defaults list without _self_; the order that it then takes is the published one.
            warnings.simplefilter("ignore", UserWarning)
            with initialize_config_dir(config_dir=str(folder), version_base="1.3", job_name="rlinf"):
                cfg = compose(file.stem, overrides=[f"hydra.searchpath={searched}"])
            return _resolve(cfg)
    except (HydraException, OmegaConfBaseException, YAMLError, ValueError) as error:
        reason = " ".join(str(error).partition("Config search path:")[0].split()).rstrip(".")
        raise ConfigError(
            f"recipe {file}: cannot be composed: {reason}. Put the presets of its defaults list next to it, or correct "
            "the list."
        ) from error


def _preset_folders(folder: Path) -> list[Path]:
    """Return where presets may be apart from the recipe's own folder."""
    above = [parent for parent in folder.parents if parent.name == "config"]
    examples = next((parent for parent in folder.parents if parent.name == "examples"), None)
    return [*above, *(sorted(examples.glob("*/config")) if examples else [])]


@contextlib.contextmanager
def _resolvers() -> Iterator[None]:
    """Register the published functions of interpolations, and take them away again."""
    from omegaconf import OmegaConf

    added = {name: function for name, function in _RESOLVERS.items() if not OmegaConf.has_resolver(name)}
    for name, function in added.items():
        OmegaConf.register_new_resolver(name, function)
    try:
        yield
    finally:
        for name in added:
            OmegaConf.clear_resolver(name)


def _resolve(cfg: DictConfig) -> dict[str, Any]:
    """Return a recipe with its interpolations resolved one by one."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    raw = OmegaConf.to_container(cfg, resolve=False)

    def resolve(node: Any, raw_node: Any, key: Any) -> Any:
        if isinstance(raw_node, dict):
            child = _select(node, key)
            return {str(name): resolve(child, item, name) for name, item in raw_node.items()}
        if not _interpolates(raw_node):
            return raw_node
        try:
            value = _select(node, key)
            return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
        # A function of an interpolation may get what it cannot compute with.
        except (OmegaConfBaseException, TypeError, ValueError, ZeroDivisionError):
            return raw_node

    assert isinstance(raw, dict)
    return {str(name): resolve(cfg, item, name) for name, item in raw.items()}


def _select(node: Any, key: Any) -> Any:
    return node[key]


def _interpolates(value: Any) -> bool:
    if isinstance(value, list):
        return any(_interpolates(item) for item in value)
    if isinstance(value, dict):
        return any(_interpolates(item) for item in value.values())
    return isinstance(value, str) and "${" in value
