"""Serves a generation engine over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import safetensors.torch

from rlinf.errors import EngineError, WeightSyncError
from rlinf.hybrid_engines.generation.generation_engine import GenerationEngine
from rlinf.hybrid_engines.serving import wire
from rlinf.hybrid_engines.serving.http_messages import (
    STREAM_LIMIT,
    HTTPError,
    HTTPHead,
    discard_body,
    read_body,
    read_head,
    read_tensor,
    response_head,
    target_of,
)
from rlinf.hybrid_engines.serving.weight_lease import WeightLease
from rlinf.hybrid_engines.weights.bucket import Manifest

CLIENT_HEADER = "x-rlinf-client"
"""Name of the client, of which no two are alike."""
PROTOCOL = 1
"""Changes where a server and a client of another version would misunderstand each other."""
_MOST_JSON_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class _Reply:
    """What a route returns that is not simply JSON."""

    status: int
    body: bytes
    is_json: bool = True


class EngineServer:
    """Lets clients use an engine as if it were in their process.

    Any client may generate. The one that holds the lease of the weights (``WeightLease``) may replace them, pause and
    sleep; a request whose client hangs up is aborted.

    Args:
        engine: Not yet started.
        description: What clients read of it, for example the backend and ``max_context_tokens``.
        token: That clients must send; empty lets in any.
    """

    def __init__(self, engine: GenerationEngine, *, description: dict[str, object], token: str = "") -> None:
        self.engine = engine
        self._description = {**description, "protocol": PROTOCOL, "instance": uuid.uuid4().hex}
        self._token = token
        self._lease = WeightLease(engine)
        self._manifest: Manifest | None = None
        self._is_ready = False
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._routes: dict[tuple[str, str], Callable[[str, dict[str, Any]], Awaitable[object]]] = {
            ("GET", "/health"): self._health,
            ("GET", "/stats"): self._stats,
            ("POST", "/generate"): self._generate,
            ("POST", "/abort"): self._abort,
            ("POST", "/lease"): self._take_lease,
            ("POST", "/pause"): self._pause,
            ("POST", "/resume"): self._resume,
            ("POST", "/update/begin"): self._begin_update,
            ("POST", "/update/commit"): self._commit,
            ("POST", "/sleep"): self._sleep,
            ("POST", "/wake"): self._wake,
            ("POST", "/weights"): self._read_weights,
        }

    async def start(self, host: str, port: int) -> str:
        """Listen.

        Args:
            host: Address to listen on.
            port: Port; 0 chooses a free one.

        Returns:
            Where it listens: ``http://host:port``.

        Raises:
            OSError: The port is taken.
        """
        self._server = await asyncio.start_server(self._connected, host, port, limit=STREAM_LIMIT)
        return f"http://{host}:{self._server.sockets[0].getsockname()[1]}"

    async def load(self) -> None:
        """Start the engine; until then ``/health`` answers that it is not ready.

        Raises:
            EngineError: It cannot start.
        """
        await self.engine.start()
        self._is_ready = True

    async def close(self) -> None:
        """Hang up on all clients, and close the engine."""
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self.engine.close()

    # ------------------------------------------------------------------------------------------------ connections

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with contextlib.suppress(ConnectionError, HTTPError, asyncio.CancelledError):
                while head := await read_head(reader):
                    if not await self._serve(head, reader, writer):
                        break
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, head: HTTPHead, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return whether the connection is of further use."""
        method, path = target_of(head)
        if not self._lets_in(head):
            refusal = EngineError("The engine server asks for its token: set RLINF_SERVER_TOKEN.")
            await _respond(writer, 401, wire.error_to_bytes(refusal))
            return False
        client = head.headers.get(CLIENT_HEADER, "")
        work: Awaitable[object]
        if method == "PUT" and path.startswith("/update/bucket/"):
            work = self._load_bucket(client, path, head, reader)
            # The body is part of the work, so that the end of the connection shows there.
            return await _answer(writer, work)
        body = await read_body(reader, head.content_bytes, most_bytes=_MOST_JSON_BYTES)
        route = self._routes.get((method, path))
        if route is None:
            await _respond(writer, 404, wire.error_to_bytes(EngineError(f"There is no {method} {path[:80]} here.")))
            return True
        try:
            message = json.loads(body) if body else {}
        except ValueError:
            await _respond(writer, 400, wire.error_to_bytes(EngineError(f"The body of {method} {path} is no JSON.")))
            return True
        return await _while_connected(reader, _answer(writer, route(client, message)))

    def _lets_in(self, head: HTTPHead) -> bool:
        given = head.headers.get("authorization", "")
        return not self._token or hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode())

    # ------------------------------------------------------------------------------------------------ routes

    async def _health(self, client: str, _: dict[str, Any]) -> object:
        self._lease.renew(client)
        ailment = "" if self._is_ready else "it is being started"
        if self._is_ready:
            try:
                await self.engine.health()
            except EngineError as error:
                ailment = str(error)
        state = {**self._description, **self._state(), "is_ready": self._is_ready, "ailment": ailment}
        return _Reply(503 if ailment else 200, wire.to_bytes(state))

    def _state(self) -> dict[str, object]:
        return {"version": self.engine.version, "is_synced": self.engine.is_synced}

    async def _stats(self, client: str, _: dict[str, Any]) -> object:
        return await self.engine.stats()

    async def _generate(self, client: str, message: dict[str, Any]) -> object:
        return await self.engine.generate(wire.read_request(message))

    async def _abort(self, client: str, message: dict[str, Any]) -> object:
        await self.engine.abort([str(name) for name in message["request_ids"]])
        return {}

    async def _take_lease(self, client: str, message: dict[str, Any]) -> object:
        await self._lease.take(client, seconds=float(message["seconds"]))
        return self._state()

    async def _pause(self, client: str, message: dict[str, Any]) -> object:
        self._lease.check(client)
        await self.engine.pause(message["mode"])
        return {}

    async def _resume(self, client: str, _: dict[str, Any]) -> object:
        self._lease.check(client)
        await self.engine.resume()
        return {}

    async def _begin_update(self, client: str, message: dict[str, Any]) -> object:
        self._lease.check(client)
        manifest = wire.read_manifest(message)
        await self.engine.begin_update(manifest)
        self._manifest = manifest
        return {}

    async def _load_bucket(self, client: str, path: str, head: HTTPHead, reader: asyncio.StreamReader) -> object:
        try:
            index = self._expected_bucket(client, path, head.content_bytes)
        except (EngineError, WeightSyncError):
            await discard_body(reader, head.content_bytes)
            raise
        await self.engine.load_bucket(index, await read_tensor(reader, head.content_bytes))
        return {}

    def _expected_bucket(self, client: str, path: str, num_bytes: int) -> int:
        """Return the index of a bucket that is about to come.

        Raises:
            WeightSyncError: No update expects it.
        """
        self._lease.check(client)
        if self._manifest is None:
            raise WeightSyncError("No weight update has begun; call begin_update() with its manifest first.")
        index, sizes = path.removeprefix("/update/bucket/"), self._manifest.bucket_sizes
        if not index.isdigit() or int(index) >= len(sizes) or num_bytes != sizes[int(index)]:
            raise WeightSyncError(f"The update expects no bucket {index[:20]} of {num_bytes} bytes.")
        return int(index)

    async def _commit(self, client: str, _: dict[str, Any]) -> object:
        self._lease.check(client)
        self._manifest = None
        await self.engine.commit()
        return self._state()

    async def _sleep(self, client: str, _: dict[str, Any]) -> object:
        self._lease.check(client)
        await self.engine.sleep()
        return {}

    async def _wake(self, client: str, _: dict[str, Any]) -> object:
        self._lease.check(client)
        await self.engine.wake()
        return {}

    async def _read_weights(self, client: str, message: dict[str, Any]) -> object:
        weights = await self.engine.read_weights([str(name) for name in message["names"]])
        if weights is None:
            return None
        return _Reply(200, safetensors.torch.save({n: t.contiguous() for n, t in weights.items()}), is_json=False)


async def _answer(writer: asyncio.StreamWriter, work: Awaitable[object]) -> bool:
    """Send what a route returns or raises; return whether the connection is of further use."""
    try:
        result = await work
    except HTTPError as error:
        await _respond(writer, 400, wire.error_to_bytes(EngineError(str(error))))
        return False
    except (KeyError, TypeError, ValueError) as error:
        await _respond(writer, 400, wire.error_to_bytes(EngineError(f"The request is malformed: {error!r}.")))
    except (EngineError, WeightSyncError) as error:
        await _respond(writer, 409 if isinstance(error, WeightSyncError) else 422, wire.error_to_bytes(error))
    else:
        reply = result if isinstance(result, _Reply) else _Reply(200, wire.to_bytes(result))
        await _respond(writer, reply.status, reply.body, is_json=reply.is_json)
    return True


async def _respond(writer: asyncio.StreamWriter, status: int, body: bytes, *, is_json: bool = True) -> None:
    writer.writelines([response_head(status, num_bytes=len(body), is_json=is_json), body])
    await writer.drain()


async def _while_connected(reader: asyncio.StreamReader, work: Awaitable[bool]) -> bool:
    """Work until the client hangs up, which cancels the work."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(reader.read(1))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        # A client that sends anything before its response has come does not keep to the rules.
        return await task if task.done() else False
    finally:
        for future in (task, gone):
            future.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)
