"""Wrong recipes from right ones: every written key with a typo, a wrong type, out of range, elsewhere, or left out.

What is wrong follows from the dataclasses: a key is given only values that its annotation rules out, and is moved only
to sections that do not have it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt

from rlinf.config.parse import field_types, fields_of, is_required
from rlinf.config.problems import describe_value, is_union, leaf_types, literal_options
from rlinf.config.registries import hardware_types
from rlinf.config.schema.algorithm import AlgorithmConfig
from rlinf.config.schema.base import ConfigSection
from rlinf.config.schema.cluster import HardwareConfig
from rlinf.config.schema.root import RLinfConfig
from rlinf.config.schema.runner import RunnerConfig
from rlinf.config.sections import _KINDS, ALGORITHM_PARTS

Keys = tuple[str | int, ...]
Recipe = dict[str, Any]

# One value of each kind that YAML has.
VALUES: dict[Any, Any] = {
    str: "no_such_value",
    bool: True,
    int: 7,
    float: 2.5,
    type(None): None,
    list: ["no_such_item"],
    dict: {"no_such_key": 1},
}


@dataclass(frozen=True, slots=True)
class Place:
    """A value that a recipe writes.

    Attributes:
        keys: Keys and indices that lead to it.
        annotation: What the schema allows.
        siblings: Keys of the section that has it as a key; none where it is an item of a list, or of a mapping with
            keys of one's choice.
        chooses: Whether it is the name of something registered.
        required: Whether the section cannot be without it.
    """

    keys: Keys
    annotation: Any
    siblings: frozenset[str] = frozenset()
    chooses: bool = False
    required: bool = False

    @property
    def path(self) -> str:
        """The dotted path, as messages write it."""
        return dotted(self.keys)


@dataclass(frozen=True, slots=True)
class Mutation:
    """A recipe with one mistake.

    Attributes:
        kind: What was done.
        paths: Paths of which the message has to name one.
        says: What the line about that has to contain, one of them.
        recipe: The recipe.
    """

    kind: str
    paths: tuple[str, ...]
    says: tuple[str, ...]
    recipe: Recipe

    def __str__(self) -> str:
        return f"{self.kind} at {self.paths[0]}"


def dotted(keys: Keys) -> str:
    """Return the path of keys and list indices as messages write it."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).removeprefix(".")


def places(recipe: Recipe, typed: RLinfConfig) -> list[Place]:
    """Return everything that a recipe writes, sections included.

    Args:
        recipe: The resolved recipe.
        typed: What was made of it.
    """
    return list(_of_section(recipe, typed, ()))


def mutations(recipe: Recipe, typed: RLinfConfig) -> Iterator[Mutation]:
    """Yield the recipe with every mistake that its schema knows to be one."""
    found = places(recipe, typed)
    sections = {place.keys[:-1]: place.siblings for place in found if place.siblings}
    for place in found:
        yield from _typos(recipe, place)
        yield from _wrong_types(recipe, place)
        yield from _out_of_range(recipe, place)
        yield from _elsewhere(recipe, place, sections)
        yield from _left_out(recipe, place)
    yield from _swapped_sections(recipe, sections)


def _of_section(written: Mapping[str, Any], section: ConfigSection, keys: Keys) -> Iterator[Place]:
    parts = [section]
    if isinstance(section, AlgorithmConfig):
        parts += [getattr(section, part) for part in ALGORITHM_PARTS]
    siblings = frozenset(name for part in parts for name in field_types(type(part))) - {*ALGORITHM_PARTS}
    for key, value in written.items():
        part = next(part for part in parts if key in field_types(type(part)) and key not in ALGORITHM_PARTS)
        field = next(field for field in fields_of(part) if field.name == key)
        annotation, at = field_types(type(part))[key], (*keys, key)
        yield Place(at, annotation, siblings, _chooses(type(section), key), is_required(field))
        yield from _inside(value, getattr(part, key), annotation, at)
        if isinstance(section, HardwareConfig) and key == "configs" and section.type in hardware_types.configs:
            for index, entry in enumerate(value):
                device = hardware_types.configs.get(section.type)
                yield from _of_section(entry, device(**entry), (*at, index))


def _chooses(cls: type[ConfigSection], key: str) -> bool:
    """Return whether a key of a section is the name of something registered."""
    choices = [(base, name) for base, (name, _) in _KINDS.items()]
    choices += [(RunnerConfig, "task_type"), *((AlgorithmConfig, name) for name, _ in ALGORITHM_PARTS.values())]
    return any(issubclass(cls, base) and key == name for base, name in choices)


def _inside(written: Any, typed: Any, annotation: Any, keys: Keys) -> Iterator[Place]:
    if isinstance(typed, ConfigSection):
        yield from _of_section(written or {}, typed, keys)
        return
    members = get_args(annotation) if is_union(annotation) else (annotation,)
    for member in members:
        if get_origin(member) is list and isinstance(written, list):
            for index, item in enumerate(written):
                yield Place((*keys, index), get_args(member)[0])
                yield from _inside(item, typed[index], get_args(member)[0], (*keys, index))
        if get_origin(member) is dict and isinstance(written, dict):
            for key, item in written.items():
                yield Place((*keys, key), get_args(member)[1])
                yield from _inside(item, typed[key], get_args(member)[1], (*keys, key))


def _typos(recipe: Recipe, place: Place) -> Iterator[Mutation]:
    """Two letters in the wrong order: what was meant is named."""
    if not place.siblings:
        return
    key = str(place.keys[-1])
    middle = len(key) // 2
    typo = next(
        key[: i - 1] + key[i] + key[i - 1] + key[i + 1 :]
        for i in (*range(middle, len(key)), *range(1, middle))
        if key[i] != key[i - 1]
    )
    wrong = _copied(recipe, place.keys[:-1])
    section = at(wrong, place.keys[:-1])
    section[typo] = section.pop(key)
    yield Mutation("a typo", (dotted((*place.keys[:-1], typo)),), (f"'{place.path}'", f" {key},", f" {key}."), wrong)


def _wrong_types(recipe: Recipe, place: Place) -> Iterator[Mutation]:
    """A value of every kind that the annotation does not have."""
    allowed = kinds(place.annotation)
    for kind, value in VALUES.items():
        if kind not in allowed:
            says = (f"received {describe_value(value)}",)
            yield Mutation(describe_value(value), (place.path,), says, _with(recipe, place.keys, value))


def _out_of_range(recipe: Recipe, place: Place) -> Iterator[Mutation]:
    """A number beyond each bound, and a name that is none of the choices."""
    values = list(_beyond(place.annotation))
    if literal_options(place.annotation) or place.chooses:
        values.append(VALUES[str])
    for value in values:
        says = (f"received {describe_value(value)}", f"'{value}'")
        yield Mutation(f"out of range with {value!r}", (place.path,), says, _with(recipe, place.keys, value))


def _elsewhere(recipe: Recipe, place: Place, sections: Mapping[Keys, frozenset[str]]) -> Iterator[Mutation]:
    """The key in a section that does not have it: the one around its own, or one written next to that."""
    if not place.siblings:
        return
    key, home, order = str(place.keys[-1]), place.keys[:-1], list(sections)
    index = order.index(home)
    for keys in dict.fromkeys([home[:-1], *order[max(index - 1, 0) : index + 2]]):
        if key in sections.get(keys, {key}) or keys[: len(place.keys)] == place.keys:
            continue
        wrong = _copied(_copied(recipe, home), keys)
        at(wrong, keys)[key] = at(wrong, home).pop(key)
        says = (f".{key}'", f"'{key}'", "not used by", "unknown key: ", "missing")
        yield Mutation("in another section", (dotted((*keys, key)), place.path), says, wrong)


def _left_out(recipe: Recipe, place: Place) -> Iterator[Mutation]:
    """A required key is missing."""
    if not place.required:
        return
    wrong = _copied(recipe, place.keys[:-1])
    del at(wrong, place.keys[:-1])[place.keys[-1]]
    yield Mutation("left out", (place.path,), ("missing",), wrong)


def _swapped_sections(recipe: Recipe, sections: Mapping[Keys, frozenset[str]]) -> Iterator[Mutation]:
    """Two whole sections have each other's keys."""
    names = [name for name, section in recipe.items() if isinstance(section, dict) and section]
    for first, second in zip(names, [*names[1:], names[0]], strict=True):
        wrong = {**recipe, first: recipe[second], second: recipe[first]}
        strange = next(key for key in recipe[second] if key not in sections[(first,)])
        yield Mutation(f"{second} instead of {first}", (f"{first}.{strange}",), (f"'{second}.{strange}'",), wrong)


def kinds(annotation: Any) -> set[Any]:
    """Return which of ``VALUES`` are of a kind that an annotation has."""
    if annotation is Any:
        return set(VALUES)
    found: set[Any] = set()
    for leaf in leaf_types(annotation):
        if isinstance(leaf, type) and issubclass(leaf, ConfigSection):
            # An empty section is no keys.
            found |= {dict, type(None)}
        elif leaf is Literal:
            found |= {type(option) for option in literal_options(annotation)}
        else:
            found |= {int, float} if leaf is float else {leaf}
    return found


def _beyond(annotation: Any) -> Iterator[float]:
    if is_union(annotation):
        for member in get_args(annotation):
            yield from _beyond(member)
    if float in leaf_types(annotation):
        yield from (float("nan"), float("inf"))
    if get_origin(annotation) is not Annotated:
        return
    for mark in get_args(annotation)[1:]:
        if isinstance(mark, Gt):
            yield from (mark.gt, mark.gt - 1)
        elif isinstance(mark, Ge):
            yield mark.ge - 1
        elif isinstance(mark, Lt):
            yield from (mark.lt, mark.lt + 1)
        elif isinstance(mark, Le):
            yield mark.le + 1


def _with(recipe: Recipe, keys: Keys, value: Any) -> Recipe:
    wrong = _copied(recipe, keys[:-1])
    at(wrong, keys[:-1])[keys[-1]] = value
    return wrong


def _copied(recipe: Recipe, keys: Keys) -> Recipe:
    """Return the recipe with copies of all that leads to ``keys``, so that what is there can be changed."""
    wrong = copy.copy(recipe)
    for length in range(1, len(keys) + 1):
        at(wrong, keys[: length - 1])[keys[length - 1]] = copy.copy(at(wrong, keys[:length]))
    return wrong


def at(recipe: Recipe, keys: Keys) -> Any:
    """Return what stands at ``keys``."""
    section: Any = recipe
    for key in keys:
        section = section[key]
    return section
