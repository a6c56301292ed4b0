"""``workflow: sessions``: online learning from live clients, which talk to the model whenever they like."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from rlinf.agents.episode_engine import EpisodeEngine
from rlinf.agents.server.session_pool import SessionPool
from rlinf.agents.server.session_server import SessionServer
from rlinf.agents.workflow import RolloutWorkflow
from rlinf.config.schema.agent import SessionsConfig
from rlinf.data.messages.responses import Prompt
from rlinf.utils.logging import get_logger


class SessionsWorkflow(RolloutWorkflow):
    """Serves clients, and makes each session that has ended an episode.

    The server listens once the engines have the run's weights: as soon as an episode is to be played.

    Args:
        cfg: The ``agent`` section.
        context: See ``RolloutWorkflow``.
    """

    cfg: SessionsConfig
    roles: ClassVar[tuple[str, ...]] = ("user",)
    _pool: SessionPool
    _starting: asyncio.Task[SessionServer] | None = None

    @property
    def timeout_seconds(self) -> None:
        """See ``RolloutWorkflow``: sessions have times of their own."""
        return

    async def close(self) -> None:
        """See ``RolloutWorkflow``."""
        if self._starting is not None:
            await (await self._starting).end()

    async def arun_episode(self, engine: EpisodeEngine, data: Prompt) -> float:
        """See ``RolloutWorkflow``; returns what the session is rewarded with."""
        del data
        if self._starting is None:
            assert self.context.template is not None
            self._pool = SessionPool(self.cfg, self.context.template, engine)
            self._starting = asyncio.ensure_future(self._start())
        await asyncio.shield(self._starting)
        return await self._pool.play(engine)

    async def _start(self) -> SessionServer:
        assert self.context.template is not None
        server = SessionServer(self.context.template, self._pool, api_key=self.cfg.api_key)
        await server.start(self.cfg.host, self.cfg.port)
        get_logger(__name__).info("Clients are served at %s.", server.base_url)
        return server
