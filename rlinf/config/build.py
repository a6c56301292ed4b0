"""``build_config`` and ``to_dict``: between a recipe as nested mappings and the typed tree."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, cast

from rlinf.config.parse import Parser, fields_of
from rlinf.config.problems import Problems
from rlinf.config.schema.algorithm import AlgorithmConfig
from rlinf.config.schema.base import ConfigSection
from rlinf.config.schema.root import RLinfConfig
from rlinf.config.sections import explain_unknown, flatten_algorithm, parse_recipe, section_parsers
from rlinf.errors import ConfigError
from rlinf.utils.plugins import load_plugins


def build_config(cfg: object) -> RLinfConfig:
    """Parse a recipe into the typed tree, checking every key and value on its own.

    Relations between sections are checked by ``validate_cfg``.

    Args:
        cfg: A nested mapping, an OmegaConf ``DictConfig`` (interpolations are resolved), or a typed tree, which is
            checked anew.

    Returns:
        The typed tree, defaults filled in.

    Raises:
        ConfigError: Unknown keys, wrong types, values out of bounds, missing keys: one line for each.
    """
    load_plugins()
    problems = Problems()
    parser = Parser(problems, section_parsers=section_parsers(), explain_unknown=explain_unknown)
    parsed = parse_recipe(parser, _plain(cfg))
    problems.raise_if_any()
    return cast("RLinfConfig", parsed)


def to_dict(cfg: ConfigSection) -> dict[str, Any]:
    """Return a typed tree as a recipe writes it: nested plain mappings, ``algorithm`` flat.

    ``build_config(to_dict(cfg)) == cfg``.
    """
    if isinstance(cfg, AlgorithmConfig):
        items = flatten_algorithm(cfg)
    else:
        items = {field.name: getattr(cfg, field.name) for field in fields_of(cfg)}
    return {key: to_plain(value) for key, value in items.items()}


def to_plain(value: Any) -> Any:
    """Return a value of a typed tree, which may hold sections, as a recipe writes it."""
    if isinstance(value, ConfigSection):
        return to_dict(value)
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    return copy.deepcopy(value)


def _plain(cfg: object) -> object:
    if isinstance(cfg, ConfigSection):
        return to_dict(cfg)
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    if isinstance(cfg, Mapping) and not OmegaConf.is_config(cfg):
        return cfg
    if not OmegaConf.is_config(cfg):
        raise ConfigError(f"recipe: received {type(cfg).__name__}; allowed: a mapping, a DictConfig or an RLinfConfig.")
    try:
        return OmegaConf.to_container(cast("Any", cfg), resolve=True)
    except OmegaConfBaseException as error:
        path = getattr(error, "full_key", None) or "recipe"
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"{path}: an interpolation cannot be resolved: {reason}. "
            "Write the key it refers to into the recipe, or the value itself."
        ) from error
