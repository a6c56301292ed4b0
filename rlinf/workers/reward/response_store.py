"""The responses that a reward rank keeps between engine and actor, out of the driver's way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeAlias

from rlinf.data.messages.responses import ResponseGroup, RewardedGroup
from rlinf.errors import RewardError

Key = tuple[str, int]
"""``train`` or ``eval``, and the group's number."""
Scoring: TypeAlias = "asyncio.Future[RewardedGroup]"
"""Ends with a rewarded group, or the failure of a reward."""


class ResponseStore:
    """The groups of responses that one reward rank keeps, from their generation until the driver discards them."""

    def __init__(self) -> None:
        self._groups: dict[Key, ResponseGroup] = {}
        self._scoring: dict[Key, Scoring] = {}

    def put(self, split: str, group: ResponseGroup, scoring: Scoring | None = None) -> None:
        """Keep a group; one of the same number, generated before, is replaced.

        Args:
            split: ``train`` or ``eval``.
            group: The group.
            scoring: The result of rewarding it, if that has begun.
        """
        key = (split, group.group_id)
        self._groups[key] = group
        self._scoring.pop(key, None)
        if scoring is not None:
            self._scoring[key] = scoring

    def get(self, split: str, group_id: int) -> ResponseGroup:
        """Return a group.

        Raises:
            RewardError: It is not here.
        """
        try:
            return self._groups[split, group_id]
        except KeyError:
            raise RewardError(
                f"The responses of {split} group {group_id} are not on this reward rank: they have been discarded, or "
                "the rank has been launched again since. Generate them again."
            ) from None

    def replace(self, split: str, group: ResponseGroup, **columns: Any) -> None:
        """Replace fields of a group's ``ResponseBatch``, unless it has been discarded or generated again meanwhile.

        Args:
            split: ``train`` or ``eval``.
            group: As ``get`` returned it.
            **columns: The fields.
        """
        if self._groups.get((split, group.group_id)) is group:
            self._groups[split, group.group_id] = replace(group, batch=replace(group.batch, **columns))

    def pop_scoring(self, split: str, group_id: int) -> Scoring | None:
        """Return the result of rewarding a group, and forget it; None if there is none."""
        return self._scoring.pop((split, group_id), None)

    def discard(self, split: str, group_ids: Iterable[int]) -> None:
        """Remove groups; those that are not here are passed over."""
        for group_id in group_ids:
            self._groups.pop((split, group_id), None)
            self._scoring.pop((split, group_id), None)

    def clear(self, split: str) -> None:
        """Remove all groups of a split."""
        self.discard(split, [number for held, number in self._groups if held == split])
