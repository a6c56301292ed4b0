"""Columns of credit: the tokens of each episode in the order of time, whichever branches they lie on."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rlinf.data.messages.responses import Response, ResponseBatch


@dataclass(frozen=True, slots=True)
class CreditColumns:
    """Where the tokens of ``N`` episodes lie among the ``T`` of a batch.

    Advantages are those of episodes: one that was played on several branches is one column, as is one with a single
    branch. A column of several branches holds what was sampled, turn by turn in the order of submission; tokens in
    between, such as results of tools, are part of a single branch's column and lie under no mask.

    Attributes:
        indices: int64 [L] for each episode: positions in the batch, in the order of time.
        num_tokens: ``T``.
    """

    indices: tuple[torch.Tensor, ...]
    num_tokens: int

    @classmethod
    def of(cls, batch: ResponseBatch) -> CreditColumns:
        """Return the columns of a batch, one for each response."""
        indices, begin = [], 0
        for response in batch.responses:
            indices.append(begin + _order(response))
            begin += response.num_tokens
        return cls(tuple(indices), begin)

    def gather(self, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the entries [T] of each episode: [L] each."""
        return tuple(values[where] for where in self.indices)

    def scatter(self, columns: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Lay columns [L] each out as the batch's tokens lie: [T], 0 where no column has an entry."""
        joined = torch.cat(columns)
        flat = torch.zeros(self.num_tokens, dtype=joined.dtype)
        return flat.index_copy(0, torch.cat(self.indices), joined)


def _order(response: Response) -> torch.Tensor:
    """Return the positions of a response's tokens in the order of time, from 0."""
    if not response.turn_spans:
        return torch.arange(response.num_tokens)
    return torch.cat([torch.arange(start, stop) for start, stop in response.turn_spans])
