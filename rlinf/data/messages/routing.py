"""Who sends what to whom: shards between groups whose sizes divide one another, and the ranks of reward groups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Route:
    """One rank's part in the exchange between a group of sources and a group of destinations.

    Attributes:
        peers: Ranks of the other group that this rank exchanges with, ascending.
        parts: Equal parts that a source cuts its batch into: the number of its destinations.
    """

    peers: tuple[int, ...]
    parts: int


def destinations(source_rank: int, num_sources: int, num_destinations: int) -> Route:
    """Return where ``source_rank`` sends its batch to: part i goes to ``peers[i]``."""
    if num_sources >= num_destinations:
        return Route((source_rank * num_destinations // num_sources,), 1)
    fan_out = num_destinations // num_sources
    return Route(tuple(range(source_rank * fan_out, (source_rank + 1) * fan_out)), fan_out)


def sources(destination_rank: int, num_sources: int, num_destinations: int) -> Route:
    """Return from whom ``destination_rank`` receives; joined in this order the parts keep the global order."""
    if num_sources <= num_destinations:
        return Route((destination_rank * num_sources // num_destinations,), num_destinations // num_sources)
    fan_in = num_sources // num_destinations
    return Route(tuple(range(destination_rank * fan_in, (destination_rank + 1) * fan_in)), 1)


def rank_of(group_id: int, world_size: int) -> int:
    """Return the reward rank that keeps and scores a group of responses."""
    return group_id % world_size


def by_rank(group_ids: Iterable[int], world_size: int) -> dict[int, list[int]]:
    """Return which groups each reward rank keeps, in the given order; ranks without any are left out."""
    numbers: dict[int, list[int]] = {}
    for group_id in group_ids:
        numbers.setdefault(rank_of(group_id, world_size), []).append(group_id)
    return numbers
