"""Overrides of recipes as values of Python, in Hydra's grammar."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Overrides = Iterable[str] | Mapping[str, object]
"""``["runner.max_epochs=3"]``, or ``{"runner.max_epochs": 3}`` with values of Python."""

_PLAIN = re.compile(r"[A-Za-z_./][\w./@-]*")
_KEYWORDS = {"true", "false", "null", "nan", "inf"}


def as_overrides(overrides: Overrides) -> list[str]:
    """Return overrides in Hydra's grammar.

    Args:
        overrides: Such strings, which stay as they are, or values of Python by their keys.
    """
    if isinstance(overrides, str):
        return [overrides]
    if isinstance(overrides, Mapping):
        return [f"{key}={_as_text(value)}" for key, value in overrides.items()]
    return list(overrides)


def _as_text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_as_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_as_text, value)) + "]"
    if isinstance(value, str | Path):
        text = str(value)
        if _PLAIN.fullmatch(text) and text.lower() not in _KEYWORDS:
            return text
        # A backslash before a quote is the only one that the grammar takes for more than itself.
        return "'" + re.sub(r"(\\*)(?='|$)", r"\1\1", text).replace("'", "\\'") + "'"
    return str(value)
