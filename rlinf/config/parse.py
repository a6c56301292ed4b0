"""Turns a plain mapping into a configuration dataclass, strictly, and reports every problem rather than the first.

The dataclasses and the containers are walked here; pydantic checks the leaves. A section with several kinds (a model,
say) is parsed by a function of ``rlinf.config.sections``, chosen by the annotation.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from rlinf.config.problems import (
    Problems,
    describe_type,
    describe_value,
    is_union,
    join,
    leaf_types,
    literal_options,
)
from rlinf.config.schema.base import ConfigSection
from rlinf.registry import Registry, did_you_mean
from rlinf.utils.secrets import is_secret_key

S = TypeVar("S", bound=ConfigSection)

INVALID: Any = object()
"""Stands for a value that could not be parsed; its problem has been noted."""

MISSING = "???"
"""How OmegaConf writes a value that must be given."""

# Spellings of other frameworks and of earlier habits, by what they mean here.
_LITERAL_ALIASES = {
    "32": "fp32",
    "16": "fp16",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "hf": "huggingface",
    "torch_constant": "constant",
    "none": "null",
}
_BOOLEAN_WORDS = {"true": "true", "yes": "true", "on": "true", "false": "false", "no": "false", "off": "false"}

_field_types: dict[type[ConfigSection], dict[str, Any]] = {}
_named_fields: dict[type[ConfigSection], dict[str, Any]] = {}
"""Those fields whose values are names of a registry, which plug-ins extend."""

SectionParser = Callable[["Parser", object, str], Any]
UnknownKey = Callable[[type[ConfigSection], str, str, "Mapping[str, Any] | None"], str]


class Parser:
    """Parses sections and collects problems.

    Args:
        problems: Where problems go.
        section_parsers: How the sections are parsed that are not simply their dataclass, by annotation.
        explain_unknown: Makes the text for an unknown key from (section's class, section's path, key, whole recipe).

    Attributes:
        recipe: The whole recipe, plain, where one is parsed; suggestions are then keys that it may have.
    """

    def __init__(
        self,
        problems: Problems,
        *,
        section_parsers: Mapping[type, SectionParser] | None = None,
        explain_unknown: UnknownKey | None = None,
    ) -> None:
        self.problems = problems
        self._section_parsers = section_parsers or {}
        self._explain_unknown = explain_unknown or closest_key
        self.recipe: Mapping[str, Any] | None = None

    def section(self, cls: type[S], data: object, path: str = "") -> S | None:
        """Parse a mapping into ``cls``; None when it has problems.

        Args:
            cls: The dataclass.
            data: The mapping; None (an empty section in YAML) means no keys.
            path: Dotted path of the section.
        """
        keys = self.mapping(data, path)
        if keys is None:
            return None
        self.unknown_keys(cls, keys, field_types(cls), path)
        values = self.fields(cls, keys, path)
        return None if values is None else cls(**values)

    def mapping(self, data: object, path: str) -> dict[str, Any] | None:
        """Return ``data`` as a dict, an empty one for None; note a problem and return None if it is no mapping."""
        if data is None:
            return {}
        if isinstance(data, Mapping):
            return {str(key): value for key, value in data.items()}
        self.problems.add(
            path, f"received {describe_value(data)}; allowed: a mapping of keys to values. Indent the keys under it."
        )
        return None

    def unknown_keys(self, cls: type[ConfigSection], keys: Iterable[str], known: Iterable[str], path: str) -> None:
        """Note every key that is not known."""
        names = set(known)
        for key in keys:
            if key not in names:
                self.problems.add(join(path, key), self._explain_unknown(cls, path, key, self.recipe))

    def fields(
        self, cls: type[ConfigSection], keys: Mapping[str, Any], path: str, skip: Iterable[str] = ()
    ) -> dict[str, Any] | None:
        """Parse the values of ``cls``'s fields out of ``keys``; None when any has a problem.

        Args:
            cls: The dataclass.
            keys: Given keys; those that are not fields are left alone.
            path: Dotted path of the section.
            skip: Fields that the caller fills in itself.
        """
        values: dict[str, Any] = {}
        for field in fields_of(cls):
            if field.name in skip:
                continue
            annotation = field_types(cls)[field.name]
            at = join(path, field.name)
            if field.name in keys and keys[field.name] != MISSING:
                values[field.name] = self.value(annotation, keys[field.name], at)
            elif is_required(field) or keys.get(field.name) == MISSING:
                # Hydra has no override for an item of a list.
                override = "" if "[" in at else f", or pass {at}=<value>"
                self.problems.add(
                    at, f"missing; required: {describe_type(annotation)}. Add it to the recipe{override}."
                )
                values[field.name] = INVALID
        return None if any(value is INVALID for value in values.values()) else values

    def value(self, annotation: Any, value: object, path: str) -> Any:
        """Parse one value; ``INVALID`` when it has a problem."""
        if isinstance(value, str) and value == MISSING:
            self.problems.add(path, f"missing; pass {path}=<value>, or write it into the recipe.")
            return INVALID
        section = self._as_section(annotation, value, path)
        if section is not INVALID:
            return INVALID if section is None else section
        origin, args = get_origin(annotation), get_args(annotation)
        if is_union(annotation):
            return self._union(annotation, value, path)
        if origin is list and isinstance(value, (list, tuple)):
            items = [self.value(args[0], item, f"{path}[{index}]") for index, item in enumerate(value)]
            return INVALID if any(item is INVALID for item in items) else items
        if origin is dict and isinstance(value, Mapping):
            entries = {str(key): self.value(args[1], item, join(path, key)) for key, item in value.items()}
            return INVALID if any(item is INVALID for item in entries.values()) else entries
        return self._leaf(annotation, value, path)

    def _as_section(self, annotation: Any, value: object, path: str) -> Any:
        """Return the parsed section, None if it has problems, or ``INVALID`` if ``annotation`` is no section."""
        if not isinstance(annotation, type):
            return INVALID
        if annotation in self._section_parsers:
            return self._section_parsers[annotation](self, value, path)
        if issubclass(annotation, ConfigSection):
            return self.section(annotation, value, path)
        return INVALID

    def _union(self, annotation: Any, value: object, path: str) -> Any:
        """Try the members a value can belong to by its kind: null, a mapping, a list, or a leaf."""
        members = get_args(annotation)
        if value is None and type(None) in members:
            return None
        if isinstance(value, Mapping):
            for member in members:
                if isinstance(member, type) and issubclass(member, ConfigSection):
                    return self.value(member, value, path)
        for member in members:
            if get_origin(member) in {list, dict} and isinstance(value, (get_origin(member), tuple)):
                return self.value(member, value, path)
        return self._leaf(annotation, value, path)

    def _leaf(self, annotation: Any, value: object, path: str) -> Any:
        checked = _check(annotation, value)
        if checked is INVALID:
            remedy = "Give a value of the allowed kind." if is_secret_key(path) else _remedy(annotation, value)
            self.problems.add(
                path,
                f"received {describe_value(value, path)}; allowed: {describe_type(annotation)}. {remedy}",
            )
        return checked


def is_required(field: dataclasses.Field[Any]) -> bool:
    """Whether a dataclass field has no default."""
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def field_types(cls: type[ConfigSection]) -> dict[str, Any]:
    """Return the annotations of ``cls``'s fields, bounds included; names of a registry are those that it has now."""
    if cls not in _field_types:
        hints = get_type_hints(cls, include_extras=True)
        _field_types[cls] = {field.name: hints[field.name] for field in fields_of(cls)}
        _named_fields[cls] = {name: hint for name, hint in _field_types[cls].items() if _with_names(hint) != hint}
    named = _named_fields[cls]
    types = _field_types[cls]
    return {**types, **{name: _with_names(hint) for name, hint in named.items()}} if named else types


def _with_names(annotation: Any) -> Any:
    """Return ``Annotated[str, registry]`` as the ``Literal`` of the registry's names, in lists too."""
    args = get_args(annotation)
    if get_origin(annotation) is list:
        return list[_with_names(args[0])]  # type: ignore[misc]  # a type that is known at run time only
    registry = next((mark for mark in args[1:] if isinstance(mark, Registry)), None)
    return annotation if registry is None else Literal[tuple(registry.names())]


def fields_of(cls: type[ConfigSection] | ConfigSection) -> tuple[dataclasses.Field[Any], ...]:
    """Return the dataclass fields of a section's class or instance."""
    return dataclasses.fields(cast("Any", cls))


def closest_key(cls: type[ConfigSection], path: str, key: str, recipe: Mapping[str, Any] | None = None) -> str:
    """Return the text for an unknown key: the closest known one, and all that are known."""
    del recipe
    names = sorted(field_types(cls))
    close = did_you_mean(key, names)
    return f"unknown key.{close}" if close else f"unknown key. Known keys here: {', '.join(names) or 'none'}."


def _check(annotation: Any, value: object) -> Any:
    if annotation is Any:
        return value
    if _without_sections(annotation) is None:
        return INVALID
    try:
        return _adapter(_without_sections(annotation)).validate_python(value)
    except ValidationError:
        return INVALID


@functools.cache
def _without_sections(annotation: Any) -> Any:
    """Drop the dataclass and container members of a union: those are parsed by the walk."""
    if not is_union(annotation):
        return annotation
    members = [
        member
        for member in get_args(annotation)
        if get_origin(member) not in {list, dict}
        and not (isinstance(member, type) and issubclass(member, ConfigSection))
    ]
    return functools.reduce(lambda left, right: left | right, members) if members else None


@functools.cache
def _adapter(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation, config=ConfigDict(strict=True, allow_inf_nan=False))


def _remedy(annotation: Any, value: object) -> str:
    leaves = leaf_types(annotation)
    options = [str(option) for option in literal_options(annotation)]
    if options:
        return _literal_remedy(options, value)
    if leaves == {list} and value is not None and not isinstance(value, (Mapping, list)):
        return f"Write a list: [{value}]."
    if isinstance(value, str):
        return _string_remedy(leaves, value)
    if value is None:
        return "Give a value, or remove the key to take the default."
    if isinstance(value, bool) or (str in leaves and not isinstance(value, (Mapping, list))):
        return "Put quotes around it if a string is meant." if str in leaves else "Give a value of the allowed kind."
    if isinstance(value, float) and int in leaves and value.is_integer():
        return f"Write {int(value)}."
    if isinstance(value, (int, float)) and leaves & {int, float}:
        return "Choose a value within these bounds." if type(value) in leaves | {int} else "Write a whole number."
    return "Give a value of the allowed kind."


def _string_remedy(leaves: set[Any], value: str) -> str:
    if dict in leaves or any(isinstance(leaf, type) and issubclass(leaf, ConfigSection) for leaf in leaves):
        inner = value.strip().removeprefix("{").removesuffix("}")
        if ":" in inner:
            return f"Write a mapping, in braces and without quotes inside them: '...={{{inner}}}' on a command line."
    if leaves & {int, float} and _is_number(value):
        hint = f"{float(value):g}" if int not in leaves else value
        mantissa, e, exponent = hint.partition("e")
        hint = f"{mantissa}{'' if '.' in mantissa else '.0'}e{int(exponent)}" if e else hint
        return f"It is a number in quotes, or one that YAML reads as a string: write {hint} without quotes."
    if bool in leaves and value.strip().lower() in _BOOLEAN_WORDS:
        return f"Write {_BOOLEAN_WORDS[value.strip().lower()]} without quotes."
    if value.strip().lower() in {"none", "null"} and type(None) in leaves:
        return "Write null without quotes."
    return "Give a value of the allowed kind."


def _literal_remedy(options: list[str], value: object) -> str:
    text = str(value).lower()
    alias = _LITERAL_ALIASES.get(text.removesuffix("-true"))
    if alias in options:
        return f"Did you mean '{alias}'?"
    return did_you_mean(text, options).strip() or f"Choose {'one of these' if len(options) > 1 else options[0]}."


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
