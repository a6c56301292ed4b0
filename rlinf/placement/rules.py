"""How ``cluster.component_placement`` is written: from the recipe's keys and values to placement strings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlinf.errors import PlacementError
from rlinf.placement.grammar import DEFAULT_PATH, Segment
from rlinf.registry import did_you_mean


def count_open_processes(segments: Sequence[Segment], spec: str | int, path: str) -> int | None:
    """Check a string with ``all``, in a group of unknown size, as far as that is possible.

    Args:
        segments: From ``parse_spec``; at least one of them is ``all``.
        spec: The placement string.
        path: Config path that error messages quote.

    Returns:
        The number of processes if the string writes them down, else None.

    Raises:
        PlacementError: Other segments stand next to ``all``, or its processes do not start at 0.
    """
    if len(segments) > 1:
        raise PlacementError(
            f"{path}: segment 'all' of '{spec}' takes every resource, so no other segment may follow or precede it."
        )
    processes = segments[0].processes
    if processes is None:
        return None
    if processes[0] != 0:
        raise PlacementError(
            f"{path}: segment '{segments[0].text}' holds processes {processes[0]}-{processes[1]}; process ranks must "
            f"be contiguous from 0. It would be valid with 0-{processes[1] - processes[0]}."
        )
    return processes[1] + 1


def split_key(key: str) -> Iterator[str]:
    """Yield the components of a key such as ``"actor,rollout"``.

    Args:
        key: The key as the recipe has it.

    Yields:
        Component names without blanks.

    Raises:
        PlacementError: A name is empty.
    """
    for part in key.split(","):
        name = part.strip()
        if not name:
            raise PlacementError(f"{DEFAULT_PATH}.{key}: empty component name; write components as 'actor,rollout'.")
        yield name


def split_value(value: object, path: str) -> tuple[str | int, str | None, str]:
    """Take a rule's value apart.

    Args:
        value: A placement string, a rank, or a mapping or object with ``placement`` and optionally ``node_group``.
        path: Config path of the rule.

    Returns:
        The placement string, the group's label (None is the default group) and the string's config path.

    Raises:
        PlacementError: The value is none of these.
    """
    if isinstance(value, (str, int)):
        return value, None, path
    if isinstance(value, Mapping):
        unknown = sorted(str(name) for name in value if name not in {"node_group", "placement"})
        if unknown:
            raise PlacementError(
                f"{path}: unknown key(s) {', '.join(unknown)}.{did_you_mean(unknown[0], ['node_group', 'placement'])} "
                "Allowed: node_group, placement."
            )
        if "placement" not in value:
            raise PlacementError(f"{path}.placement is missing; write the hardware ranks, for example 0-7 or all.")
        return value["placement"], value.get("node_group"), f"{path}.placement"
    if hasattr(value, "placement"):
        return value.placement, value.node_group if hasattr(value, "node_group") else None, f"{path}.placement"
    raise PlacementError(
        f"{path}: {value!r} is not a placement; write a string such as 0-7 or all, or "
        "{node_group: ..., placement: ...}."
    )


def find_rules(cfg: Any) -> Mapping[Any, object]:
    """Find the rules in a recipe or in its ``cluster`` section, whether those are mappings or objects.

    Args:
        cfg: The recipe or the section.

    Returns:
        ``component_placement``.

    Raises:
        PlacementError: It is missing or not a mapping.
    """
    section = cfg
    if isinstance(section, Mapping):
        section = section.get("cluster", section)
    elif hasattr(section, "cluster"):
        section = section.cluster
    rules = None
    if isinstance(section, Mapping):
        rules = section.get("component_placement")
    elif hasattr(section, "component_placement"):
        rules = section.component_placement
    if not isinstance(rules, Mapping):
        raise PlacementError(f"{DEFAULT_PATH}: {rules!r} is not a mapping from components to placements.")
    return rules
