"""The keys of recipes of the published system that differ from ours: one table for error messages and for migration.

The table is data: ``published_keys.yaml``, which says at its top how its entries are written.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

TABLE_FILE = Path(__file__).with_suffix(".yaml")

Action = Literal["drop", "lost", "absent", "move", "convert", "values"]
_ACTIONS: tuple[Action, ...] = ("drop", "lost", "absent", "move", "convert", "values")
_OTHERS = {"key", "when", "where", "set", "why"}
_ENOUGH_TO_RECOGNIZE = 4
"""Keys of the published system that a recipe has at least; one or two are habits of a user of ours."""


@dataclass(frozen=True, kw_only=True)
class KeyRule:
    """What becomes of one published key, or of all keys of a pattern.

    Attributes:
        key: Dotted path; ``*`` is a name or part of one, ``**`` also several.
        action: ``drop``: it has no effect here; ``lost``: what it does has no counterpart; ``absent``: without a
            counterpart the recipe cannot run; ``move``: it has another path; ``convert``: its value follows from
            others too; ``values``: some values have other names.
        target: Of ``move`` the new path, in which ``{0}`` is what the first ``*`` matched; of ``convert`` the name of
            the conversion.
        values: Former and new value; other values stay as they are.
        when: The values that the rule applies to; None is all.
        where: Other keys of the recipe, by dotted path, and the values that they have where it applies.
        sets: Keys to write in addition, where the recipe does not have them.
        why: The reason, in words.
    """

    key: str
    action: Action
    target: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    when: tuple[Any, ...] | None = None
    where: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    sets: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""

    def match(self, path: str) -> tuple[str, ...] | None:
        """Return what the stars of ``key`` stand for in ``path``, or None where it does not fit."""
        found = _pattern(self.key).fullmatch(path)
        return None if found is None else found.groups()

    def applies(self, value: object, recipe: Mapping[str, Any]) -> bool:
        """Return whether the rule is one for this value, in this recipe."""
        if self.when is not None and not _is_one_of(value, self.when):
            return False
        return all(_is_one_of(value_at(recipe, path), values) for path, values in self.where.items())

    def explain(self, groups: tuple[str, ...] = ()) -> str:
        """Return the rule in words, for the user who wrote the key."""
        why = self.why.format(*groups) if "{" in self.why else self.why
        if self.action == "drop":
            return f"{why}: remove it."
        if self.action in {"lost", "absent"}:
            return f"it has no counterpart: {why}. Remove it."
        if self.action == "move":
            return f"write {self.target.format(*groups)}{', ' + why if why else ''}."
        if self.action == "convert":
            return f"write {why}."
        return f"write {', '.join(f'{new} for {old}' for old, new in self.values.items())}."


@functools.cache
def published_keys() -> tuple[KeyRule, ...]:
    """Return the table; of the rules that fit a key, the first holds."""
    import yaml

    return tuple(_rule(entry) for entry in yaml.safe_load(TABLE_FILE.read_text(encoding="utf-8")))


def _rule(entry: Mapping[str, Any]) -> KeyRule:
    actions = [action for action in _ACTIONS if action in entry]
    # A move may rename values on the way.
    action = next(iter(actions))
    assert set(entry) <= {*_ACTIONS, *_OTHERS}, f"unknown part of the rule for {entry['key']}"
    assert set(actions) <= {action, "values"}, f"several actions for {entry['key']}"
    text = str(entry[action])
    return KeyRule(
        key=entry["key"],
        action=action,
        target=text if action in {"move", "convert"} else "",
        values={word_of(old): new for old, new in entry.get("values", {}).items()},
        when=tuple(entry["when"]) if "when" in entry else None,
        where={path: tuple(values) for path, values in entry.get("where", {}).items()},
        sets=entry.get("set", {}),
        why=text if action in {"drop", "lost", "absent"} else entry.get("why", ""),
    )


def find_rule(path: str, value: object, recipe: Mapping[str, Any]) -> tuple[KeyRule, tuple[str, ...]] | None:
    """Return the first rule for a key with this value, and what its stars stand for; None where there is none."""
    for rule in published_keys():
        groups = rule.match(path)
        if groups is not None and rule.applies(value, recipe):
            return rule, groups
    return None


def explain_published(path: str, recipe: Mapping[str, Any] | None = None) -> str | None:
    """Return what to do about a key of the published system, or about those of a section; None for other keys.

    Args:
        path: The key.
        recipe: The recipe that has it, which decides among several rules for a key; None takes the first.
    """
    matching = [(rule, groups) for rule in published_keys() if (groups := rule.match(path)) is not None]
    matching = [(rule, groups) for rule, groups in matching if rule.action != "values"]
    applying = [pair for pair in matching if recipe is not None and pair[0].applies(value_at(recipe, path), recipe)]
    for rule, groups in applying or matching:
        return rule.explain(groups)
    below = [rule for rule in published_keys() if rule.key.startswith(f"{path}.") and rule.action == "move"]
    named = [f"{rule.key} is {rule.target}" for rule in below if not set("*{") & set(rule.key + rule.target)]
    return f"of its keys, {', '.join(dict.fromkeys(named))}." if named else None


def is_published(recipe: Mapping[str, Any]) -> bool:
    """Return whether a recipe is one of the published system, by its keys."""
    found = 0
    for path, value in leaves(recipe):
        rule = find_rule(path, value, recipe)
        found += rule is not None and rule[0].action in {"drop", "move"}
        if found >= _ENOUGH_TO_RECOGNIZE:
            return True
    return False


def leaves(node: object, path: str = "") -> Iterable[tuple[str, object]]:
    """Yield the values of nested mappings with their dotted paths; an empty mapping is a value."""
    if isinstance(node, Mapping) and node:
        for key, value in node.items():
            yield from leaves(value, f"{path}.{key}" if path else str(key))
    elif path:
        yield path, node


def word_of(value: object) -> str:
    """Return a value as the table's entries name it: as YAML writes it."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def value_at(recipe: object, path: str, default: Any = None) -> Any:
    """Return the value at a dotted path of nested mappings; ``default`` where there is none, or null."""
    for key in path.split("."):
        recipe = recipe.get(key) if isinstance(recipe, Mapping) else None
    return default if recipe is None else recipe


def _is_one_of(value: object, options: Iterable[object]) -> bool:
    """Return whether a value is one of some, not counting 0 as false and 1 as true."""
    return any(type(value) is type(option) and value == option for option in options)


@functools.cache
def _pattern(key: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*|\*)", key)
    texts = {"**": "(.*)", "*": r"([^.]*)"}
    return re.compile("".join(texts.get(part, re.escape(part)) for part in parts))
