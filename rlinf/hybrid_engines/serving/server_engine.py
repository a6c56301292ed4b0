"""The ``server`` engine: generates on servers that ``rlinf serve`` runs, here or on other machines."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from rlinf.config.schema.base import Precision
from rlinf.config.schema.generation import ServerGenerationConfig
from rlinf.errors import EngineError
from rlinf.hybrid_engines.serving.remote_engine import Patience, RemoteEngine
from rlinf.hybrid_engines.serving.routed_engine import RoutedEngine

_TOKEN_VARIABLE = "RLINF_SERVER_TOKEN"
"""Environment variable with the token that servers ask their clients for."""


class ServerEngine(RoutedEngine):
    """Generates on the servers of ``rollout.server.base_urls``.

    Args:
        cfg: The ``rollout`` section.
        model_path: Not needed: each server has a copy of its own.
        device: Not needed.
        precision: Not needed: the servers have theirs.
        seed: Not needed: requests without a seed take the servers'.
        max_context_tokens: Most tokens of a prompt and its response together; the servers must have as many.
    """

    def __init__(
        self,
        cfg: ServerGenerationConfig,
        *,
        model_path: str | Path,
        device: torch.device,
        precision: Precision,
        seed: int,
        max_context_tokens: int,
    ) -> None:
        server = cfg.server
        patience = Patience(
            timeout_seconds=server.timeout_seconds,
            health_interval_seconds=server.health_interval_seconds,
            start_timeout_seconds=server.start_timeout_seconds,
        )
        token = os.environ.get(_TOKEN_VARIABLE, "")
        self._remote = [RemoteEngine(url, patience, token=token) for url in server.base_urls]
        self._max_context_tokens = max_context_tokens
        super().__init__(self._remote)

    async def start(self) -> None:
        """Wait until all servers are healthy.

        Raises:
            EngineError: One was not in time, or its context is too short.
        """
        await super().start()
        for server in self._remote:
            has = int(server.description["max_context_tokens"])
            if has < self._max_context_tokens:
                raise EngineError(
                    f"The engine server {server.base_url} was started for {has} tokens of prompt and response; this "
                    f"run needs {self._max_context_tokens}. Start it with this recipe's lengths."
                )
