"""No key of the schema is decoration: something outside ``rlinf.config`` reads each of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import rlinf
from rlinf.config.parse import field_types
from rlinf.config.registries import advantages, envs, losses, models
from rlinf.config.schema.algorithm import AdvantageConfig, LossConfig
from rlinf.config.schema.base import ConfigSection
from rlinf.config.schema.root import RLinfConfig

ROOT = Path(rlinf.__file__).parent


def _all_sections(cls: type = ConfigSection) -> Iterator[type]:
    for child in cls.__subclasses__():
        if child.__module__.startswith("rlinf.config.schema."):
            yield child
        yield from _all_sections(child)


def _readers() -> Iterator[ast.AST]:
    """Code that acts on keys: not validation and not the plan's table, but the schema's own derived properties."""
    for path in ROOT.rglob("*.py"):
        room, name = path.relative_to(ROOT).parts[0], path.name
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if room not in {"config", "cli"} or name == "entry.py":
            yield tree
        elif path.parent.name == "schema":
            yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def _attributes_read() -> set[str]:
    nodes = (node for tree in _readers() for node in ast.walk(tree))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)}


def _algorithm_parameters() -> set[str]:
    """Keys of an advantage or loss reach its function as a parameter, or are taken out of the mapping by name."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "algorithms").rglob("*.py"))
    names: set[str] = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.FunctionDef):
            names |= {arg.arg for arg in [*node.args.args, *node.args.kwonlyargs]}
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            names.add(str(node.slice.value))
    return names


def _is_algorithm_part(cls: type) -> bool:
    """Whether the section is an advantage's or a loss's, or one within it, which is handed on as a mapping."""
    parts = [part for part in _all_sections() if issubclass(part, (AdvantageConfig, LossConfig))]
    return cls in parts or any(cls in field_types(part).values() for part in parts)


ATTRIBUTES, PARAMETERS = _attributes_read(), _algorithm_parameters()
KEYS = sorted(
    {(cls.__name__, name, _is_algorithm_part(cls)) for cls in {*_all_sections()} for name in field_types(cls)}
)


@pytest.mark.parametrize(("section", "key", "is_algorithm_part"), KEYS, ids=lambda value: str(value))
def test_key_is_read(section: str, key: str, is_algorithm_part: bool) -> None:
    readers = ATTRIBUTES | PARAMETERS if is_algorithm_part else ATTRIBUTES
    assert key in readers, f"{section}.{key} is in the schema, but nothing in rlinf/ reads it"


def test_registries_hold_schema_classes() -> None:
    known = set(_all_sections())
    assert RLinfConfig in known
    for registry in (advantages.configs, envs.configs, losses.configs, models.configs):
        assert {registry.get(name) for name in registry.names()} <= known
