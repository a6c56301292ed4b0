"""Columns of credit: the tokens of each episode, or of each agent of it, in the order of time."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass

import torch

from rlinf.data.messages.responses import Response, ResponseBatch


@dataclass(frozen=True, slots=True)
class CreditColumns:
    """Where the tokens of ``U`` units of credit lie among the ``T`` of a batch.

    A unit is an episode, or one agent's part of an episode. Advantages are those of units: one that was played on
    several branches is one column, as is one with a single branch. A column of several branches holds what was sampled,
    turn by turn in the order of submission; tokens in between, such as results of tools, are part of a single branch's
    column and lie under no mask.

    Attributes:
        indices: int64 [L] for each unit: positions in the batch, in the order of time.
        num_tokens: ``T``.
        episodes: Number of the response that each unit is a part of, [U].
        roles: Role of the agent of each unit, which is its name up to the first dot, [U]; empty for the agent that the
            row was given to, and for episodes.
    """

    indices: tuple[torch.Tensor, ...]
    num_tokens: int
    episodes: tuple[int, ...]
    roles: tuple[str, ...]

    @classmethod
    def of(cls, batch: ResponseBatch, *, by_agent: bool = False) -> CreditColumns:
        """Return the columns of a batch.

        Args:
            batch: The responses.
            by_agent: Whether each agent of an episode has a column of its own.
        """
        indices, episodes, roles, begin = [], [], [], 0
        for number, response in enumerate(batch.responses):
            for agent, places in _places(response, by_agent=by_agent).items():
                indices.append(begin + places)
                episodes.append(number)
                roles.append(agent.partition(".")[0])
            begin += response.num_tokens
        return cls(tuple(indices), begin, tuple(episodes), tuple(roles))

    @property
    def numbers(self) -> torch.Tensor:
        """int64 [T]; the number of the column that has each token, 0 where none has."""
        return self.scatter(tuple(torch.full((len(where),), number) for number, where in enumerate(self.indices)))

    def group_ids(self, batch: ResponseBatch) -> torch.Tensor:
        """Return int64 [U]: equal for units that are compared, which are those of one role in one group."""
        groups = [batch.responses[number].group_id for number in self.episodes]
        numbers: dict[tuple[int, str], int] = {}
        return torch.tensor([numbers.setdefault(key, len(numbers)) for key in zip(groups, self.roles, strict=True)])

    def weights(self, mask: torch.Tensor) -> torch.Tensor:
        """Return the weights with which units count as much as their episode, all units of an episode alike.

        Args:
            mask: bool [T]; a unit without a token under it does not count.

        Returns:
            float32 [T]; 0 where no unit has the token.
        """
        counted = [number for number, where in zip(self.episodes, self.indices, strict=True) if mask[where].any()]
        units = Counter(counted)
        weights = [1.0 / max(units[number], 1) for number in self.episodes]
        return self.scatter(
            tuple(torch.full((len(where),), weight) for weight, where in zip(weights, self.indices, strict=True))
        )

    def turn_rewards(self, batch: ResponseBatch) -> tuple[torch.Tensor, ...] | None:
        """Return the rewards of turns, at their last tokens: float32 [L] for each unit; None where no turn has any."""
        if not any(response.turn_rewards for response in batch.responses):
            return None
        flat = torch.zeros(self.num_tokens)
        begins = itertools.accumulate((response.num_tokens for response in batch.responses), initial=0)
        for start, response in zip(begins, batch.responses, strict=False):
            if response.turn_rewards:
                ends = torch.tensor([start + stop - 1 for _, stop in response.turn_spans])
                flat[ends] = torch.tensor(response.turn_rewards)
        return self.gather(flat)

    def gather(self, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the entries [T] of each unit: [L] each."""
        return tuple(values[where] for where in self.indices)

    def scatter(self, columns: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Lay columns [L] each out as the batch's tokens lie: [T], 0 where no column has an entry."""
        joined = torch.cat(columns)
        flat = torch.zeros(self.num_tokens, dtype=joined.dtype)
        return flat.index_copy(0, torch.cat(self.indices), joined)


def _places(response: Response, *, by_agent: bool) -> dict[str, torch.Tensor]:
    """Return the positions of a response's tokens in the order of time, from 0, by the name of the unit's agent."""
    if not response.turn_spans:
        return {"": torch.arange(response.num_tokens)}
    agents = response.turn_agents if by_agent else ()
    spans: dict[str, list[torch.Tensor]] = {}
    for agent, (start, stop) in zip(agents or ("",) * len(response.turn_spans), response.turn_spans, strict=True):
        spans.setdefault(agent, []).append(torch.arange(start, stop))
    return {agent: torch.cat(places) for agent, places in spans.items()}
