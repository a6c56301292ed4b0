"""The responses that a reward rank keeps between engine and actor, out of the driver's way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from rlinf.data.messages.responses import ResponseGroup
from rlinf.errors import RewardError

Key = tuple[str, int]
"""``train`` or ``eval``, and the group's number."""


class ResponseStore:
    """The groups of responses that one reward rank keeps, from their generation until the driver discards them."""

    def __init__(self) -> None:
        self._groups: dict[Key, ResponseGroup] = {}

    def put(self, split: str, group: ResponseGroup) -> None:
        """Keep a group; one of the same number, generated before, is replaced."""
        self._groups[split, group.group_id] = group

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

    def discard(self, split: str, group_ids: Iterable[int]) -> None:
        """Remove groups; those that are not here are passed over."""
        for group_id in group_ids:
            self._groups.pop((split, group_id), None)

    def clear(self, split: str) -> None:
        """Remove all groups of a split."""
        self._groups = {key: group for key, group in self._groups.items() if key[0] != split}
