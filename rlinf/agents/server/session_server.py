"""Serves the sessions of live clients: applications open them, and say later how good the responses were."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Iterator

from aiohttp import web

from rlinf.agents.server.agent_server import AgentServer, key_of, list_models, read_json, read_value
from rlinf.agents.server.dialects.dialect import RequestError
from rlinf.agents.server.program_session import Session
from rlinf.agents.server.session_pool import LiveSession, SessionPool
from rlinf.agents.template import ChatTemplate
from rlinf.utils.logging import get_logger

_END_SECONDS = 60.0
"""For requests that are being served when the run ends."""


class SessionServer(AgentServer):
    """Completions for applications that run elsewhere.

    An application has a key of its own. With it as the API key each request is a session; the key of a session that it
    has opened makes all requests one conversation.

    Args:
        template: Renders messages.
        pool: The sessions.
        api_key: The application's key.
    """

    def __init__(self, template: ChatTemplate, pool: SessionPool, *, api_key: str) -> None:
        super().__init__(template)
        self._pool, self._api_key = pool, api_key
        self._is_ending = False

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """See ``AgentServer``."""
        router.add_post("/v1/sessions", self._open)
        router.add_delete("/v1/sessions/{name}", self._close)
        router.add_post("/v1/feedback", self._feedback)

    def find_session(self, key: str) -> Session | None:
        """See ``AgentServer``."""
        self._refuse_at_end()
        if self._is_application(key):
            return self._pool.open(is_single=True)
        session = self._pool.find(key)
        return None if session is None or session.is_closed else session

    @contextlib.contextmanager
    def serving(self, session: Session) -> Iterator[None]:
        """See ``AgentServer``."""
        assert isinstance(session, LiveSession)
        with self._pool.serving(session):
            yield

    async def end(self) -> None:
        """Refuse further requests, let those end that are being served, and hang up."""
        self._is_ending = True
        try:
            await self._pool.wait_idle(_END_SECONDS)
        except asyncio.TimeoutError:
            get_logger(__name__).warning("The run ends while requests are being served.")
        await self.close()

    async def _models(self, request: web.Request) -> web.Response:
        if not self._is_application(key_of(request)) and self._pool.find(key_of(request)) is None:
            raise web.HTTPUnauthorized(reason="The API key is neither the application's nor a session's")
        return list_models()

    async def _open(self, request: web.Request) -> web.Response:
        self._refuse_at_end()
        self._check_application(request)
        session = self._pool.open()
        return web.json_response({"id": session.id, "api_key": session.key, "is_tracked": session.is_tracked})

    async def _close(self, request: web.Request) -> web.Response:
        self._check_application(request)
        session = self._pool.find_id(request.match_info["name"])
        if session is None:
            raise web.HTTPNotFound(reason="There is no such session, or none any more")
        self._pool.close(session)
        return web.json_response({"id": session.id, "is_tracked": session.is_tracked})

    async def _feedback(self, request: web.Request) -> web.Response:
        self._check_application(request)
        body = read_json(await request.read())
        value, response_id = read_value(body), body.get("response_id")
        if not isinstance(response_id, str):
            raise RequestError(f"response_id: received {response_id!r}; expected the id of a response.")
        session = self._pool.credit(response_id, value)
        if session is None:
            raise web.HTTPNotFound(reason="There is no such response, or its session has ended")
        return web.json_response({"session": session.id, "is_tracked": session.is_tracked})

    async def _reward(self, request: web.Request) -> web.Response:
        session = self._pool.find(key_of(request))
        if session is None:
            raise web.HTTPUnauthorized(reason="The API key belongs to no session, or to one that has ended")
        value = read_value(read_json(await request.read()))
        self._pool.judge(session, value)
        return web.json_response({"value": value})

    def _is_application(self, key: str) -> bool:
        return secrets.compare_digest(key.encode(), self._api_key.encode())

    def _check_application(self, request: web.Request) -> None:
        if not self._is_application(key_of(request)):
            raise web.HTTPUnauthorized(reason="This route takes the application's key, agent.api_key")

    def _refuse_at_end(self) -> None:
        if self._is_ending:
            raise web.HTTPServiceUnavailable(reason="The run has ended")
