"""Serves a generation engine over HTTP."""

from __future__ import annotations

import hmac
import json
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import safetensors.torch
import torch
from aiohttp import StreamReader, web

from rlinf.errors import EngineError, WeightSyncError
from rlinf.hybrid_engines.generation.generation_engine import GenerationEngine
from rlinf.hybrid_engines.serving import wire
from rlinf.hybrid_engines.serving.weight_lease import WeightLease
from rlinf.hybrid_engines.weights.bucket import Manifest

CLIENT_HEADER = "X-RLinf-Client"
"""Name of the client, of which no two are alike."""
PROTOCOL = 1
"""Changes where a server and a client of another version would misunderstand each other."""
_MOST_JSON_BYTES = 256 << 20
_SHUTDOWN_SECONDS = 0.1
"""For requests that are left when the server ends, half-sent ones too; aiohttp takes 0 for no limit."""
_Route = Callable[[str, dict[str, Any]], Awaitable[object]]


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
        self._runner: web.AppRunner | None = None
        self._routes: dict[tuple[str, str], _Route] = {
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
        application = web.Application(client_max_size=_MOST_JSON_BYTES, middlewares=[self._guard])
        for (method, path), route in self._routes.items():
            application.router.add_route(method, path, _json_handler(route))
        application.router.add_put("/update/bucket/{index}", self._load_bucket)
        # A request whose client hangs up is cancelled; so are those that are left when the server ends.
        runner = web.AppRunner(
            application, handler_cancellation=True, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS
        )
        self._runner = runner
        await runner.setup()
        await web.TCPSite(runner, host, port).start()
        return f"http://{host}:{runner.addresses[0][1]}"

    async def load(self) -> None:
        """Start the engine; until then ``/health`` answers that it is not ready.

        Raises:
            EngineError: It cannot start.
        """
        await self.engine.start()
        self._is_ready = True

    async def close(self) -> None:
        """Hang up on all clients, and close the engine."""
        if self._runner is not None:
            await self._runner.cleanup()
        await self.engine.close()

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Let in who has the token; say in JSON what went wrong."""
        if not self._lets_in(request):
            return _failure(401, EngineError("The engine server asks for its token: set RLINF_SERVER_TOKEN."))
        what = f"{request.method} {request.path[:80]}"
        try:
            return await handler(request)
        except web.HTTPException as error:
            return _failure(error.status, EngineError(f"{what}: {error.reason}."))
        except (KeyError, TypeError, ValueError) as error:
            return _failure(400, EngineError(f"{what}: the request is malformed: {error!r}."))
        except WeightSyncError as error:
            return _failure(409, error)
        except EngineError as error:
            return _failure(422, error)

    def _lets_in(self, request: web.Request) -> bool:
        given = request.headers.get("Authorization", "")
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
        return _reply(state, status=503 if ailment else 200)

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

    async def _load_bucket(self, request: web.Request) -> web.Response:
        num_bytes = request.content_length or 0
        try:
            self._lease.check(request.headers.get(CLIENT_HEADER, ""))
            index = self._expected_bucket(request.match_info["index"], num_bytes)
        except (EngineError, WeightSyncError):
            # So that its sender comes to read why.
            async for _ in request.content.iter_any():
                pass
            raise
        await self.engine.load_bucket(index, await _read_tensor(request.content, num_bytes))
        return _reply({})

    def _expected_bucket(self, index: str, num_bytes: int) -> int:
        """Return the index of a bucket that is about to come.

        Raises:
            WeightSyncError: No update expects it.
        """
        if self._manifest is None:
            raise WeightSyncError("No weight update has begun; call begin_update() with its manifest first.")
        sizes = self._manifest.bucket_sizes
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
        content = safetensors.torch.save({name: tensor.contiguous() for name, tensor in weights.items()})
        return web.Response(body=content, content_type="application/octet-stream")


def _json_handler(route: _Route) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return what answers a request with what a route makes of its body."""

    async def handle(request: web.Request) -> web.Response:
        body = await request.read()
        result = await route(request.headers.get(CLIENT_HEADER, ""), json.loads(body) if body else {})
        return result if isinstance(result, web.Response) else _reply(result)

    return handle


def _reply(message: object, *, status: int = 200) -> web.Response:
    return web.Response(status=status, body=wire.to_bytes(message), content_type="application/json")


def _failure(status: int, error: EngineError | WeightSyncError) -> web.Response:
    return web.Response(status=status, body=wire.error_to_bytes(error), content_type="application/json")


async def _read_tensor(content: StreamReader, num_bytes: int) -> torch.Tensor:
    """Read a body of a known size into memory of its own: uint8, [num_bytes]."""
    memory, position = np.empty(num_bytes, np.uint8), 0
    async for chunk in content.iter_any():
        memory[position : position + len(chunk)] = np.frombuffer(chunk, np.uint8)
        position += len(chunk)
    return torch.from_numpy(memory)
