"""What a recipe says beyond the defaults: every key with its value, and the default where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, dataclass
from typing import Any

from rlinf.config.build import to_plain
from rlinf.config.parse import fields_of
from rlinf.config.problems import join
from rlinf.config.schema.algorithm import AlgorithmConfig
from rlinf.config.schema.base import ConfigSection
from rlinf.config.sections import ALGORITHM_PARTS


@dataclass(frozen=True, slots=True)
class RecipeValue:
    """One key of a recipe.

    Attributes:
        path: Full dotted path.
        value: What the recipe has, plain.
        default: What it would have if nothing were said, plain; None where a value is required.
        is_default: Whether both are equal.
    """

    path: str
    value: Any
    default: Any
    is_default: bool


def recipe_values(cfg: ConfigSection) -> list[RecipeValue]:
    """Return every key of a typed tree, sections opened up, in the order of the dataclasses.

    Args:
        cfg: The tree.
    """
    return list(_walk(cfg, None, ""))


def _walk(section: ConfigSection, usual: ConfigSection | None, path: str) -> Iterator[RecipeValue]:
    """Compare a section with ``usual``, which its place has if nothing is said, or with its own defaults."""
    for field in fields_of(section):
        value, default = getattr(section, field.name), _default(field)
        if usual is not None:
            default = getattr(usual, field.name)
        is_part = isinstance(section, AlgorithmConfig) and field.name in ALGORITHM_PARTS
        at = path if is_part else join(path, field.name)
        if isinstance(value, ConfigSection):
            yield from _walk(value, default if type(default) is type(value) else None, at)
        else:
            plain, plain_default = to_plain(value), None if default is MISSING else to_plain(default)
            yield RecipeValue(at, plain, plain_default, default is not MISSING and plain == plain_default)


def _default(field: Any) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()
