"""Keys that are set and have no effect: known, but not used by what else the recipe says."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from rlinf.config.parse import fields_of
from rlinf.config.problems import Problems, join
from rlinf.config.schema.base import ConfigSection
from rlinf.utils.secrets import hide_for_reader


def note_unused(problems: Problems, section: ConfigSection, names: Iterable[str], path: str, reason: str) -> None:
    """Note those of ``names`` that differ from their default.

    A key that is written out with its default value changes nothing and is left alone.

    Args:
        problems: Where problems go.
        section: The section that holds the keys.
        names: Keys that have no effect.
        path: Dotted path of the section.
        reason: Completes "not used ...", for example ``"by adv_type=grpo"``.
    """
    for field in fields_of(section):
        if field.name not in names:
            continue
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        value = getattr(section, field.name)
        if value != default:
            shown = hide_for_reader(value)
            problems.add(join(path, field.name), f"received {shown!r}; not used {reason}. Remove it, or change that.")
