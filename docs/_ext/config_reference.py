"""The reference of all recipe keys, from the dataclasses of ``rlinf.config.schema`` and the registries."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any, get_args

from rlinf.config.parse import field_types, fields_of, is_required
from rlinf.config.problems import describe_type
from rlinf.config.registries import hardware_types, task_types
from rlinf.config.schema.algorithm import AlgorithmConfig
from rlinf.config.schema.base import ConfigSection
from rlinf.config.sections import _KINDS, ALGORITHM_PARTS

Kinds = dict[type[ConfigSection], list[str]]
"""Classes of one place in a recipe, with the choices that select each."""


def config_section(name: str) -> str:
    """Return the Markdown for one section of recipes and all that it holds."""
    return "\n\n".join(_place(path, kinds) for path, kinds in places(name).items())


def places(name: str) -> dict[str, Kinds]:
    """Return every place in a recipe at or below the section ``name`` that holds keys, with its classes."""
    found: dict[str, Kinds] = {}
    for task in task_types.configs.names():
        annotation = field_types(task_types.configs.get(task)).get(name)
        for cls in section_classes(annotation):
            for chosen, text in _choices(cls):
                _collect(found, name, chosen, text or f"`task_type: {task}`")
    if name == "algorithm":
        for part, (key, registry) in (
            ("adv_type", ALGORITHM_PARTS["advantage"]),
            ("loss_type", ALGORITHM_PARTS["loss"]),
        ):
            for choice in registry.names():
                _collect(found, f"algorithm ({part})", registry.get(choice), f"`{key}: {choice}`")
    if name == "cluster":
        for choice in hardware_types.configs.names():
            _collect(
                found,
                "cluster.node_groups[].hardware.configs[]",
                hardware_types.configs.get(choice),
                f"`type: {choice}`",
            )
    return found


def section_classes(annotation: Any) -> Iterator[type[ConfigSection]]:
    """Return the dataclasses in an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, ConfigSection):
        yield annotation
    for argument in get_args(annotation):
        yield from section_classes(argument)


def _collect(found: dict[str, Kinds], path: str, cls: type[ConfigSection], choice: str) -> None:
    kinds = found.setdefault(path, {})
    if cls in kinds:
        if choice and choice not in kinds[cls]:
            kinds[cls].append(choice)
        return
    kinds[cls] = [choice] if choice else []
    root = path.partition(" ")[0]
    for field, annotation in field_types(cls).items():
        if root == "algorithm" and field in ALGORITHM_PARTS and path == "algorithm":
            continue
        for inner in section_classes(annotation):
            # Both hold the same kinds.
            name = "{train,eval}" if path == "env" and field in {"train", "eval"} else field
            below = f"{root}.{name}{_brackets(annotation)}"
            for chosen, text in _choices(inner):
                _collect(found, below, chosen, text)


def _choices(cls: type[ConfigSection]) -> Iterator[tuple[type[ConfigSection], str]]:
    """Return the classes that may stand where ``cls`` is annotated, and what selects each."""
    if cls not in _KINDS:
        yield cls, ""
        return
    key, registry = _KINDS[cls]
    yield cls, ""
    for name in registry.names():
        if issubclass(registry.get(name), cls):
            yield registry.get(name), f"`{key}: {name}`"


def _brackets(annotation: Any) -> str:
    text = describe_type(annotation)
    return "[]" if text.startswith("list") else ".*" if text.startswith("mapping to") else ""


def _place(path: str, kinds: Kinds) -> str:
    lines = [f"## `{path}`"]
    shown: list[type[ConfigSection]] = []
    for cls, choices in kinds.items():
        # Recipes write the keys of these parts flat, and not their names.
        parts = ALGORITHM_PARTS if issubclass(cls, AlgorithmConfig) else ()
        base = next((other for other in shown if issubclass(cls, other)), None)
        fields = [field for field in fields_of(cls) if field.name not in parts]
        own = [field for field in fields if base is None or _differs(field, cls, base)]
        if len(kinds) > 1:
            lines.append(f"### {', '.join(choices) or cls.__name__}")
        lines.append(first_paragraph(cls))
        if base is not None:
            lines.append(_with_base(base, only=not own))
        if own:
            lines.append(table(cls, own))
        elif base is None:
            lines.append("No keys.")
        shown.insert(0, cls)
    return "\n\n".join(lines)


def _with_base(base: type[ConfigSection], only: bool = False) -> str:
    names = ", ".join(f"`{field.name}`" for field in fields_of(base))
    if not names:
        return "No keys." if only else ""
    return f"As described above: {names}." + ("" if only else " And:")


def _differs(field: dataclasses.Field[Any], cls: type[ConfigSection], base: type[ConfigSection]) -> bool:
    theirs = {other.name: other for other in fields_of(base)}
    if field.name not in theirs:
        return True
    same = (field.default, field.default_factory) == (theirs[field.name].default, theirs[field.name].default_factory)
    return not same or field_types(cls)[field.name] != field_types(base)[field.name]


def table(cls: type[ConfigSection], fields: list[dataclasses.Field[Any]]) -> str:
    """Return a table of fields: key, type, default, meaning."""
    rows = ["| Key | Type | Default | Meaning |", "|---|---|---|---|"]
    types, meanings = field_types(cls), meanings_of(cls)
    for field in fields:
        cells = (f"`{field.name}`", describe_type(types[field.name]), default(field), meanings.get(field.name, ""))
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def default(field: dataclasses.Field[Any]) -> str:
    """Return a field's default as a recipe writes it."""
    if is_required(field):
        return "required"
    if field.default is not dataclasses.MISSING:
        value: Any = field.default
    elif isinstance(field.default_factory, type) and issubclass(field.default_factory, ConfigSection):
        return "see below"
    else:
        value = field.default_factory()  # type: ignore[misc]
    if isinstance(value, ConfigSection):
        return "see below"
    words = {None: "null", True: "true", False: "false", "": '""'}
    return f"`{words[value] if isinstance(value, (bool, str, type(None))) and value in words else value}`"


@functools.cache
def meanings_of(cls: type) -> dict[str, str]:
    """Return the text under each field, those of base classes included."""
    meanings: dict[str, str] = {}
    for owner in reversed(cls.__mro__):
        if owner is object or not dataclasses.is_dataclass(owner):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0].body  # type: ignore[attr-defined]
        for statement, after in zip(body, body[1:], strict=False):
            if (
                isinstance(statement, ast.AnnAssign)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
            ):
                meanings[statement.target.id] = " ".join(str(after.value.value).split())  # type: ignore[union-attr]
    return meanings


def first_paragraph(cls: type) -> str:
    """Return what a dataclass says of itself."""
    return " ".join((inspect.getdoc(cls) or "").partition("\n\n")[0].split())
