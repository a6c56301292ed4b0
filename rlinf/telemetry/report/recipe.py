"""The resolved recipe of a run: what the command line sets, what the recipe sets, what is a default."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlinf.config import build_config
from rlinf.config.differences import recipe_values
from rlinf.config.validate import plan_run, planned_cluster
from rlinf.errors import RLinfError
from rlinf.placement import draw_plan
from rlinf.telemetry.report.run_folder import RunFolder

_OVERRIDE = re.compile(r"[+~]*([A-Za-z_][\w.@/]*)=.*", re.DOTALL)
_MAX_CHARACTERS = 400


def describe_recipe(run: RunFolder) -> dict[str, Any] | None:
    """Return what the page shows of a run's recipe; None where it is not recorded.

    Returns:
        ``keys``: for each its ``path``, its ``value``, its ``default`` (absent where it has none) and its ``origin``:
        ``command``, ``recipe``, ``default`` or ``unknown``; ``recipe``, its name; ``overrides``; ``placement``, as
        text; ``earlier``, the recipes of earlier launches and where they differ.
    """
    if run.config is None:
        return None
    command = [str(part) for part in run.launches[-1].get("command") or []] if run.launches else []
    overrides = [match[0] for part in command if (match := _OVERRIDE.fullmatch(part))]
    return {
        "recipe": _option(command, "--config-name"),
        "overrides": overrides,
        "keys": _keys(run.config, overrides),
        "placement": _placement(run),
        "earlier": list(_earlier(run)),
    }


def _option(command: Sequence[str], name: str) -> str | None:
    for index, part in enumerate(command):
        if part == name:
            return next(iter(command[index + 1 :]), None)
        if part.startswith(f"{name}="):
            return part.removeprefix(f"{name}=")
    return None


def _keys(config: Mapping[str, Any], overrides: Sequence[str]) -> list[dict[str, Any]]:
    named = [match[1].split("@")[-1] for text in overrides if (match := _OVERRIDE.fullmatch(text))]
    try:
        values = recipe_values(build_config(config))
    except RLinfError:
        # Written by another version, or it needs a plug-in that is not here: the values are still worth showing.
        return [
            {"path": path, "value": _words(value), "origin": "command" if _is_named(path, named) else "unknown"}
            for path, value in flatten(config)
        ]
    rows = []
    for entry in values:
        origin = "default" if entry.is_default else "recipe"
        row = {"path": entry.path, "value": _words(entry.value)}
        if not entry.is_default and entry.default is not None:
            row["default"] = _words(entry.default)
        rows.append(row | {"origin": "command" if _is_named(entry.path, named) else origin})
    return rows


def _is_named(path: str, named: Sequence[str]) -> bool:
    """Return whether an override names a key, a part of it, or a section that it is in."""
    return any(path == name or path.startswith(f"{name}.") or name.startswith(f"{path}.") for name in named)


def flatten(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every key of nested mappings with its dotted path; an empty mapping is a value."""
    for key, value in config.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{path}.")
        else:
            yield path, value


def _words(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]} ..."


def _placement(run: RunFolder) -> str | None:
    """Return the recorded diagram; for an older run, the one derived from its recipe."""
    recorded = next((launch["placement"] for launch in reversed(run.launches) if launch.get("placement")), None)
    if recorded is not None:
        return str(recorded)
    try:
        plan = plan_run(run.config)
        return draw_plan(plan.placement, planned_cluster(plan).nodes)
    except RLinfError:
        return None


def _earlier(run: RunFolder) -> Iterator[dict[str, Any]]:
    """Yield the recipes of earlier launches that differed from the last."""
    now = {path: _words(value) for path, value in flatten(run.config or {})}
    for path in sorted(run.path.glob("config.*.yaml")):
        then = {key: _words(value) for key, value in flatten(run.yaml(path.name) or {})}
        changes = [
            {"path": key, "then": then.get(key), "now": now.get(key)}
            for key in sorted(then.keys() | now.keys())
            if then.get(key) != now.get(key)
        ]
        if changes:
            yield {"file": path.name, "changes": changes}
