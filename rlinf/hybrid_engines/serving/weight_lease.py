"""Which client of a server may replace the weights."""

from __future__ import annotations

import time

from rlinf.errors import WeightSyncError
from rlinf.hybrid_engines.generation.generation_engine import GenerationEngine

_MOST_SECONDS = 600.0


class WeightLease:
    """One client at a time may replace the weights of an engine: two runs would train on each other's samples.

    The lease ends by itself if its client does not renew it, as it does with every look at the server's health. The
    next client then starts with versions of its own.

    Args:
        engine: The engine.
    """

    def __init__(self, engine: GenerationEngine) -> None:
        self._engine = engine
        self._client = ""
        self._seconds = 0.0
        self._ends = 0.0

    async def take(self, client: str, *, seconds: float) -> None:
        """Give a client the lease.

        Args:
            client: Its name.
            seconds: Time without a sign of the client after which the lease ends; 0 gives it back.

        Raises:
            WeightSyncError: Another client has it.
        """
        left = self._ends - time.monotonic()
        if self._client not in {"", client} and left > 0:
            raise WeightSyncError(
                f"Another client updates the weights of this server, and was heard of {self._seconds - left:.0f} s "
                f"ago. Its lease ends {left:.0f} s from now unless it renews it. Give each run that trains servers of "
                "its own."
            )
        if client != self._client and self._engine.version >= 0:
            await self._engine.reset_version()
        self._client, self._seconds = client if seconds else "", min(max(seconds, 0.0), _MOST_SECONDS)
        self._ends = time.monotonic() + self._seconds

    def renew(self, client: str) -> None:
        """Note that a client lives."""
        if client and client == self._client:
            self._ends = time.monotonic() + self._seconds

    def check(self, client: str) -> None:
        """Return if a client has the lease, and renew it.

        Raises:
            WeightSyncError: It does not.
        """
        if not client or client != self._client:
            raise WeightSyncError("This client does not have the lease of the server's weights, or has lost it.")
        self.renew(client)
