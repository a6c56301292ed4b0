"""A pass of the ``hf`` engine's model that writes down which experts its tokens go to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from rlinf.data.messages.generation import RouteArray
from rlinf.models.language.expert_routing import ExpertRouting, ExpertSizes, RankRouting


@dataclass(frozen=True, slots=True)
class RecordedPass:
    """The ``plan`` of a pass, as ``steer_routers`` reads it.

    Attributes:
        routing: Chooses as the model's own routers do, and records.
        lengths: Tokens of each row, without padding.
    """

    routing: RankRouting
    lengths: tuple[int, ...]

    @classmethod
    def of(cls, sizes: ExpertSizes, lengths: Sequence[int], *, device: torch.device) -> RecordedPass:
        """Return the plan of a pass over rows that are padded on the right to the longest.

        Args:
            sizes: Of the model.
            lengths: Tokens of each row.
            device: The model's.
        """
        counts = torch.tensor(lengths)
        is_token = torch.arange(int(counts.max())) < counts[:, None]
        places = torch.where(is_token, is_token.flatten().cumsum(0).view(is_token.shape) - 1, -1).flatten()
        recorded = sizes.no_routes(sum(lengths)).to(device)
        routing = RankRouting(ExpertRouting(sizes, recorded=recorded), places.to(device), scale=1.0)
        return cls(routing, tuple(lengths))

    def routes(self) -> list[RouteArray]:
        """Return where the tokens of each row went, on the host."""
        recorded = self.routing.routing.recorded
        assert recorded is not None
        return [part.numpy() for part in torch.split(recorded.cpu(), list(self.lengths))]
