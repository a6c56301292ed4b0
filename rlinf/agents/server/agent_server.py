"""Serves episodes to programs that speak the OpenAI protocol, or Anthropic's."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any

from aiohttp import web

from rlinf.agents.episode_engine import ContextFullError, EpisodeEngine, TurnLimitError
from rlinf.agents.server.dialects.chat_dialect import ChatDialect
from rlinf.agents.server.dialects.completions_dialect import CompletionsDialect
from rlinf.agents.server.dialects.dialect import Dialect, RequestError, ServedRequest, event_bytes
from rlinf.agents.server.dialects.messages_dialect import MessagesDialect
from rlinf.agents.server.dialects.responses_dialect import ResponsesDialect
from rlinf.agents.server.program_session import Exchange, Session
from rlinf.agents.template import ChatTemplate
from rlinf.errors import AgentError

MODEL_NAME = "policy"
_MOST_BODY_BYTES = 64 << 20
_SHUTDOWN_SECONDS = 0.1
"""For requests that are left when the server ends, half-sent ones too; aiohttp takes 0 for no limit."""
_CODES = (
    (ContextFullError, "context_length_exceeded"),
    (TurnLimitError, "turn_limit"),
    (RequestError, "invalid_request"),
)
_PATIENCE_SECONDS = 10.0
"""Between two signs of life to a client that waits."""


class AgentServer:
    """Chat completions, responses, completions and messages of many episodes; an API key names the episode.

    Args:
        template: Renders messages.

    Attributes:
        base_url: What clients are given, once it listens: ``http://host:port/v1``.
    """

    def __init__(self, template: ChatTemplate) -> None:
        self.base_url = ""
        self._template = template
        self._sessions: dict[str, Session] = {}
        self._runner: web.AppRunner | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen.

        Args:
            host: Address to listen on.
            port: Port; 0 chooses a free one.

        Raises:
            OSError: The port is taken.
        """
        application = web.Application(client_max_size=_MOST_BODY_BYTES, middlewares=[_guard])
        for dialect in (ChatDialect(), CompletionsDialect(), ResponsesDialect(), MessagesDialect()):
            application.router.add_post(dialect.path, self._completing(dialect))
        application.router.add_get("/health", _health)
        application.router.add_get("/v1/models", self._models)
        application.router.add_post("/v1/episode/reward", self._reward)
        self.add_routes(application.router)
        # A request whose client hangs up is cancelled; so are those that are left when the server ends.
        runner = web.AppRunner(
            application, handler_cancellation=True, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS
        )
        self._runner = runner
        await runner.setup()
        await web.TCPSite(runner, host, port).start()
        self.base_url = f"http://{host}:{runner.addresses[0][1]}/v1"

    async def close(self) -> None:
        """Hang up on all clients."""
        if self._runner is not None:
            await self._runner.cleanup()

    @contextlib.asynccontextmanager
    async def open(self, engine: EpisodeEngine) -> AsyncIterator[Session]:
        """Serve an episode for as long as the context lasts.

        Args:
            engine: Of the episode.
        """
        session = Session(engine, self._template)
        self._sessions[session.key] = session
        try:
            yield session
        finally:
            del self._sessions[session.key]
            await session.close()

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Add what this server has in addition."""

    def find_session(self, key: str) -> Session | None:
        """Return the session of an API key; None if there is none."""
        return self._sessions.get(key)

    @contextlib.contextmanager
    def serving(self, session: Session) -> Iterator[None]:
        """Do something around each request of a completion."""
        del session
        yield

    def _session(self, request: web.Request) -> Session:
        session = self.find_session(key_of(request))
        if session is None:
            raise web.HTTPUnauthorized(reason="The API key belongs to no episode, or to one that has ended")
        return session

    def _completing(self, dialect: Dialect) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def complete(request: web.Request) -> web.StreamResponse:
            session = self._session(request)
            body = await request.read()
            message = read_json(body)
            served = _read(dialect, message)
            is_retry = request.headers.get("x-stainless-retry-count", "0") != "0"
            model = str(message.get("model") or MODEL_NAME)
            with self.serving(session):
                exchange = session.exchange(served, body=request.path.encode() + body, model=model, is_retry=is_retry)
                response = await _respond(request, exchange, dialect, served)
                session.deliver(exchange)
            return response

        return complete

    async def _models(self, request: web.Request) -> web.Response:
        self._session(request)
        return list_models()

    async def _reward(self, request: web.Request) -> web.Response:
        session = self._session(request)
        session.outcome = read_value(read_json(await request.read()))
        return web.json_response({"value": session.outcome})


def list_models() -> web.Response:
    """Return the list of the one model that is served."""
    model = {"id": MODEL_NAME, "object": "model", "created": 0, "owned_by": "rlinf"}
    return web.json_response({"object": "list", "data": [model]})


def key_of(request: web.Request) -> str:
    """Return the API key that a request comes with; empty without one."""
    kind, _, bearer = request.headers.get("Authorization", "").partition(" ")
    return (request.headers.get("x-api-key") or (bearer if kind.lower() == "bearer" else "")).strip()


def read_value(body: Mapping[str, Any]) -> float:
    """Return the ``value`` of a reward.

    Raises:
        RequestError: It is no finite number.
    """
    value = body.get("value")
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise RequestError(f"value: received {value!r}; expected a finite number.")
    return float(value)


async def _respond(
    request: web.Request, exchange: Exchange, dialect: Dialect, served: ServedRequest
) -> web.StreamResponse:
    """Write the response of an exchange; a client that waits long is sent what does not change the response.

    Raises:
        Exception: The completion failed.
        ConnectionError: The client is gone.
    """
    headers = {"Content-Type": "text/event-stream" if served.is_streamed else "application/json"}
    response = web.StreamResponse(headers=headers)
    done, _ = await asyncio.wait({exchange.task}, timeout=_PATIENCE_SECONDS)
    if not done:
        await response.prepare(request)
    while not done:
        await response.write(b": wait\n\n" if served.is_streamed else b" ")
        done, _ = await asyncio.wait({exchange.task}, timeout=_PATIENCE_SECONDS)
    if response.prepared and (exchange.task.cancelled() or exchange.task.exception()) and request.transport:
        request.transport.abort()  # the status says that all is well: the client requests again, and is sent another
    turn = exchange.task.result()
    if served.is_streamed:
        content = event_bytes(dialect.events(turn, served), ends_with_done=dialect.ends_with_done)
    else:
        content = json.dumps(dialect.write(turn)).encode()
    if not response.prepared:
        await response.prepare(request)
    await response.write(content)
    await response.write_eof()
    return response


@web.middleware
async def _guard(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Say in the protocol's words what went wrong, and whether to request it again."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        return _failure(error.status, error.reason, "invalid_request")
    except AgentError as error:
        codes = (code for kind, code in _CODES if isinstance(error, kind))
        return _failure(400, str(error), next(codes, "agent_error"))
    except ConnectionError:
        raise
    except Exception as error:  # noqa: BLE001 - the boundary: the episode's workflow raises it
        return _failure(503, f"{type(error).__name__}: {error}", "engine_failed")


def _failure(status: int, message: str, code: str) -> web.Response:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    # Anthropic's clients read the first key.
    return web.json_response({"type": "error", "error": error}, status=status, headers={"x-should-retry": "false"})


def _read(dialect: Dialect, message: dict[str, Any]) -> ServedRequest:
    try:
        return dialect.read(message)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RequestError(f"The request is malformed: {type(error).__name__}: {error}") from error


def read_json(body: bytes) -> dict[str, Any]:
    """Return the object that a body holds.

    Raises:
        RequestError: It holds none.
    """
    try:
        message = json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:
        raise RequestError(f"The body is not valid JSON: {error}") from error
    if not isinstance(message, dict):
        raise RequestError(f"The body is a {type(message).__name__}; expected a JSON object.")
    return message


async def _health(request: web.Request) -> web.Response:
    del request
    return web.json_response({"status": "ok"})
