"""Declared hardware, from mappings to the dataclass that its type has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from rlinf.config.parse import Parser
from rlinf.config.problems import Problems
from rlinf.config.schema.base import ConfigSection

S = TypeVar("S", bound=ConfigSection)


def parse_hardware(info: Mapping[str, Any], cls: type[S]) -> S:
    """Return what a worker knows of its hardware (``Worker.hardware_infos``) as the dataclass of its type.

    Args:
        info: ``type``, and the entry of ``hardware.configs``.
        cls: The dataclass.

    Raises:
        ConfigError: Keys or values are not those of the dataclass.
    """
    problems = Problems()
    entry = {key: value for key, value in info.items() if key != "type"}
    parsed = Parser(problems).section(cls, entry, "cluster.node_groups[].hardware.configs[]")
    problems.raise_if_any()
    assert parsed is not None  # a section with problems has raised
    return parsed
