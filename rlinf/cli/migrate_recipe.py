"""Applies the table of published keys to a composed recipe, and lets the schema remove what its choices do not use."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlinf.cli.migrate_values import CONVERSIONS
from rlinf.config.published_keys import KeyRule, find_rule, value_at, word_of
from rlinf.config.validate import validate_cfg
from rlinf.errors import ConfigError

_MOST_ROUNDS = 20
"""Removing a key can make another one unused, or bring relations to light: a few rounds are enough."""
_LINE = re.compile(r"  - (?P<path>\S+?): (?P<text>.*)", re.DOTALL)
_NOT_USED = re.compile(r"(?:received .*; )?not used (?P<reason>.+?)(?: \(it belongs.*| Remove.*|: .*)?$", re.DOTALL)
_NO_COUNTERPART = re.compile(
    r"unknown (?P<kind>[a-z -]+) '(?P<name>[^']*)'\."
    r"|received '(?P<other>[^']*)', an? (?P<of>[a-z -]+) of another kind of "
)
_TO_FILL_IN = "???"
_STAND_INS: tuple[Any, ...] = (
    1,
    8,
    512,
    "package.module:Name",
    ["a"],
    [0.5, 0.0, 0.2],
    [0.5, 0.0, 0.2, 3.14, 0.0, 0.0],
)
"""In place of values that only the user knows, so that the rest of the recipe is checked, too."""
_NO_SECTION = "missing; required: mapping."

Keys = tuple[str, ...]


@dataclass
class Migration:
    """A migrated recipe and what became of its keys.

    Attributes:
        recipe: The recipe as ours.
        renamed: Former and new key, with the value where that changed.
        dropped: Keys without an effect here, and why.
        lost: Keys whose effect has no counterpart, and why.
        missing: Sections that have no counterpart: the path of the choice, and what it names.
        to_fill_in: Keys whose value only the user knows.
        unproven: Sections that run through an adapter which was never run with its simulator, and its name.
        problems: What else is wrong with the result, one line each.
    """

    recipe: dict[str, Any] = field(default_factory=dict)
    renamed: list[tuple[str, str]] = field(default_factory=list)
    dropped: list[tuple[str, str]] = field(default_factory=list)
    lost: list[tuple[str, str]] = field(default_factory=list)
    missing: list[tuple[str, str]] = field(default_factory=list)
    to_fill_in: list[str] = field(default_factory=list)
    unproven: list[tuple[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def outcome(self) -> str:
        """What the result lacks most, in the order of ``rlinf.cli.migrate``'s table; or ``complete``."""
        for name, found in (
            ("problems", self.problems),
            ("no counterpart", self.missing),
            ("fill in", self.to_fill_in),
            ("adapter", self.unproven),
            ("reduced", self.lost),
        ):
            if found:
                return name
        return "complete"


def migrate_recipe(published: Mapping[str, Any]) -> Migration:
    """Return a published recipe, composed, as one of ours.

    Args:
        published: The recipe, plain; ``hydra`` and ``defaults`` are gone.

    Returns:
        The recipe and what became of its keys. It is valid where ``outcome`` is ``complete``, ``reduced`` or
        ``adapter``.
    """
    if "runner" not in published:
        reason = "the recipe has no such section: it belongs to a script of its own"
        if "advantage" in published or value_at(published, "data.failure_reward") is not None:
            reason = "frames are labelled by the recipe of the value model itself, with data.advantage_tag"
        return Migration(recipe=dict(published), missing=[("runner", reason)])
    walk = _Walk(published)
    walk.visit((), published)
    walk.finish()
    _remove_unused(walk.result)
    for name, section in (walk.result.recipe.get("env") or {}).items():
        if value_at(section, "env_type") == "guest":
            what = f"adapter {section['adapter']} for {value_at(section, 'init_params.env_type')}, unproven"
            walk.result.unproven.append((f"env.{name}", what))
    return walk.result


class _Walk:
    """One pass over a published recipe.

    Args:
        published: The recipe.
    """

    def __init__(self, published: Mapping[str, Any]) -> None:
        self.published = published
        self.result = Migration()
        self._moves: list[tuple[str, str, Any, KeyRule]] = []
        self._sets: list[tuple[str, Any]] = []

    def visit(self, keys: Keys, value: Any) -> None:
        """Apply the first rule for a key; without one, keep it or look at its own keys."""
        path = ".".join(keys)
        found = find_rule(path, value, self.published) if keys else None
        if found is not None:
            self._apply(*found, keys, value)
        elif isinstance(value, Mapping) and value:
            for key, item in value.items():
                self.visit((*keys, str(key)), item)
        elif keys:
            put(self.result.recipe, keys, value)

    def finish(self) -> None:
        """Write what was moved: a key that the recipe itself has at the new place keeps its value."""
        for old, new, value, rule in self._moves:
            present = value_at(self.result.recipe, new)
            if present is not None and present != value:
                self.result.dropped.append((old, f"{new} is given too and holds ({present!r}; here {value!r})"))
                continue
            put(self.result.recipe, tuple(new.split(".")), value)
            self._note_move(old, new, value, rule)
        for path, value in self._sets:
            if value_at(self.result.recipe, path) is None:
                put(self.result.recipe, tuple(path.split(".")), value)

    def _apply(self, rule: KeyRule, groups: tuple[str, ...], keys: Keys, value: Any) -> None:
        path = ".".join(keys)
        self._sets += [(key.format(*groups), item) for key, item in rule.sets.items()]
        if rule.action == "drop":
            self.result.dropped.append((path, rule.why))
        elif rule.action == "lost":
            self.result.lost.append((path, rule.why))
        elif rule.action == "absent":
            self.result.missing.append((path, rule.why))
        elif rule.action == "values":
            new = rule.values.get(word_of(value), value)
            put(self.result.recipe, keys, new)
            if new != value:
                self.result.renamed.append((path, f"{path} = {_short(new)} (was {_short(value)})"))
        elif rule.action == "move":
            new = rule.values.get(word_of(value), value)
            self._move(path, rule.target.format(*groups), new, rule)
        else:
            converted = CONVERSIONS[rule.target](value, self.published, groups)
            if not converted:
                self.result.dropped.append((path, "it changes nothing with this value"))
            for target, item in converted.items():
                self._move(path, target, item, rule)

    def _note_move(self, old: str, new: str, value: Any, rule: KeyRule) -> None:
        former = value_at(self.published, old)
        if old == new and value == former:
            return
        shown = new if value == former else f"{new} = {_short(value)} (was {_short(former)})"
        why = f": {rule.why}" if rule.why and rule.action == "move" else ""
        self.result.renamed.append((old, f"{shown}{why}"))

    def _move(self, old: str, new: str, value: Any, rule: KeyRule) -> None:
        """Note a move; the value at its new place may have another name as well."""
        again = find_rule(new, value, self.published)
        if again is not None and again[0].action == "values":
            value = again[0].values.get(word_of(value), value)
        self._moves.append((old, new, value, rule))


def _remove_unused(result: Migration) -> None:
    """Remove the keys that the recipe's own choices do not use, and note what is wrong apart from that."""
    lines: list[tuple[str, str]] = []
    for _ in range(_MOST_ROUNDS):
        lines = _problems_when_filled_in(result.recipe)
        needless = [(path, reason) for path, text in lines if (reason := _needless(text))]
        removed = [(path, reason) for path, reason in needless if _remove(result.recipe, path)]
        result.dropped += removed
        if not removed:
            break
    for path, text in lines:
        if found := _NO_COUNTERPART.match(text):
            kind, name, other, of = found.group("kind", "name", "other", "of")
            result.missing.append((path, f"{kind} {name}" if kind else f"{of} {other} in recipes of this task"))
    chosen = {path.rpartition(".")[0] for path, _ in result.missing}
    for path, text in lines:
        if path in dict(result.missing) or (path.rpartition(".")[0] in chosen and text.startswith("unknown key")):
            # Which keys there are depends on the choice.
            continue
        if text.startswith(_NO_SECTION) and "." not in path:
            if path not in dict(result.missing):
                result.missing.append((path, "the recipe has no such section, and trains nothing"))
        elif _is_to_fill_in(result.recipe, path, text):
            result.to_fill_in.append(path)
        else:
            result.problems.append(f"{path}: {text}")


def _needless(text: str) -> str | None:
    """Return why a problem goes away with its key, or None for other problems."""
    if text.startswith("received null;"):
        return "null takes the default"
    found = _NOT_USED.fullmatch(text)
    return f"not used {found['reason'].rstrip('.')}" if found else None


def _is_to_fill_in(recipe: Mapping[str, Any], path: str, text: str) -> bool:
    return value_at(recipe, path) == _TO_FILL_IN or text.startswith("missing;")


def _problems_when_filled_in(recipe: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what is wrong with a recipe: the values that are to be filled in, and what is wrong without them."""
    filled = copy.deepcopy(dict(recipe))
    to_fill_in: dict[str, str] = {}
    lines = _problems_of(filled)
    while fresh := {
        path: text
        for path, text in lines
        if path not in to_fill_in and not text.startswith(_NO_SECTION) and _is_to_fill_in(filled, path, text)
    }:
        to_fill_in |= fresh
        for path in fresh:
            _fill_in(filled, path)
        lines = _problems_of(filled)
    return [*to_fill_in.items(), *((path, text) for path, text in lines if path not in to_fill_in)]


def _fill_in(recipe: dict[str, Any], path: str) -> None:
    """Write the stand-in that goes best with the rest: a number of environments with the batch size, say."""
    keys = tuple(path.split("."))

    def count(value: Any) -> tuple[bool, int]:
        put(recipe, keys, value)
        lines = _problems_of(recipe)
        return any(where.partition("[")[0] == path for where, _ in lines), len(lines)

    put(recipe, keys, min(_STAND_INS, key=count))


def _problems_of(recipe: Mapping[str, Any]) -> list[tuple[str, str]]:
    try:
        validate_cfg(recipe)
    except ConfigError as error:
        first, *lines = str(error).splitlines()
        found = [match for line in lines if (match := _LINE.fullmatch(line))]
        if not found:
            path, _, text = first.partition(": ")
            return [(path, text)]
        return [(match["path"], match["text"]) for match in found]
    return []


def put(recipe: dict[str, Any], keys: Keys, value: Any) -> None:
    """Write a value into nested mappings, making those that are missing."""
    for key in keys[:-1]:
        child = recipe.get(key)
        if not isinstance(child, dict):
            child = recipe[key] = {}
        recipe = child
    recipe[keys[-1]] = value


def _remove(recipe: dict[str, Any], path: str) -> bool:
    """Remove a key; return whether there was one."""
    *sections, key = path.split(".")
    for section in sections:
        child = recipe.get(section)
        if not isinstance(child, dict):
            return False
        recipe = child
    return recipe.pop(key, _TO_FILL_IN) is not _TO_FILL_IN


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
