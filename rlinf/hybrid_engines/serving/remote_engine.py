"""A generation engine that a server computes for (``EngineServer``)."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from safetensors.torch import load as read_tensors

from rlinf.data.messages.generation import EngineStats, GenerationRequest, GenerationResult
from rlinf.errors import EngineDiedError, EngineError, WeightSyncError
from rlinf.hybrid_engines.generation.generation_engine import GenerationEngine, PauseMode
from rlinf.hybrid_engines.serving import wire
from rlinf.hybrid_engines.serving.http_client import HTTPClient
from rlinf.hybrid_engines.weights.bucket import Manifest

T = TypeVar("T")

_PROTOCOL = 1
_RETRY_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a client waits for a server.

    Attributes:
        timeout_seconds: For an answer to the question whether it is healthy; the server is dead without.
        health_interval_seconds: Between two such questions.
        start_timeout_seconds: Until a server is there, and has loaded its model.
    """

    timeout_seconds: float
    health_interval_seconds: float
    start_timeout_seconds: float

    @property
    def lease_seconds(self) -> float:
        """How long this client may be silent before another may update the weights."""
        return 3 * (self.timeout_seconds + self.health_interval_seconds)


class RemoteEngine(GenerationEngine):
    """The engine of a server.

    The server's health is looked at all the time. If it dies, hangs or cannot be reached, all calls in flight and
    further ones end with ``EngineDiedError``, until it answers again.

    Args:
        base_url: Where the server is.
        patience: How long to wait for it.
        token: That it asks for; empty for none.

    Attributes:
        description: What the server says of itself.
        ailment: Why it cannot generate; empty if it can, as far as is known.
    """

    def __init__(self, base_url: str, patience: Patience, *, token: str = "") -> None:
        self.base_url = base_url
        self.description: dict[str, Any] = {}
        self.ailment = "it has not been reached yet"
        self._patience = patience
        self._name = uuid.uuid4().hex
        headers = {"X-RLinf-Client": self._name, **({"Authorization": f"Bearer {token}"} if token else {})}
        self._http = HTTPClient(base_url, headers)
        self._version, self._is_synced, self._has_lease = -1, False, False
        self._state_number = 0
        self._in_flight: set[str] = set()
        self._death: asyncio.Future[EngineDiedError] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def version(self) -> int:
        """Version of the weights; -1 for those that the engine was built with."""
        return self._version

    @property
    def is_synced(self) -> bool:
        """Whether all weights are there from updates, so that one may replace some of them (``is_partial``)."""
        return self._is_synced

    @property
    def is_usable(self) -> bool:
        """Whether the server answers and its engine can generate, as far as is known."""
        return self.is_alive and not self.ailment

    @property
    def is_alive(self) -> bool:
        """Whether the server answers."""
        return self._death is not None and not self._death.done()

    async def start(self) -> None:
        """Wait until the server is healthy, and look after it from then on.

        Raises:
            EngineError: It was not in time, asks for another token or speaks another version of the protocol.
        """
        self._loop = asyncio.get_running_loop()
        deadline = self._loop.time() + self._patience.start_timeout_seconds
        while not (await self._look() and self.description["is_ready"]):
            if self._loop.time() > deadline:
                raise EngineError(f"The engine server {self.base_url} did not become ready: {self.ailment}.")
            await asyncio.sleep(_RETRY_SECONDS)
        if self.description["protocol"] != _PROTOCOL:
            raise EngineError(f"The engine server {self.base_url} belongs to another version of RLinf; restart it.")
        self._watch = self._loop.create_task(self._keep_looking())

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(self._patience.health_interval_seconds)
            await self._look()

    async def _look(self) -> bool:
        """See how the server is; return whether it answers.

        Raises:
            EngineError: It refuses to answer this client.
        """
        number = self._state_number
        try:
            status, content = await asyncio.wait_for(self._http.send("GET", "/health"), self._patience.timeout_seconds)
        except (OSError, asyncio.TimeoutError) as error:
            seconds = self._patience.timeout_seconds
            is_late = isinstance(error, asyncio.TimeoutError)
            self._die(f"no answer within {seconds:g} s" if is_late else f"{type(error).__name__}: {error}")
            return False
        if status not in {200, 503}:
            raise wire.read_error(content)
        answer = json.loads(content)
        if answer["instance"] != self.description.get("instance"):
            self._has_lease = False
        self.description = answer
        # What was true before an update began or ended may arrive after it.
        if number == self._state_number:
            self.ailment = str(answer["ailment"])
            self._read_state(answer)
        if not self.is_alive:
            self._death = asyncio.get_running_loop().create_future()
        return True

    def _die(self, why: str) -> None:
        self.ailment = why
        if self._death is not None and not self._death.done():
            self._death.set_result(EngineDiedError(f"The engine server {self.base_url} is gone: {why}"))
        self._http.hang_up()

    async def can_generate(self) -> bool:
        """See now whether the server is there and its engine healthy."""
        return await self._look() and not self.ailment

    # ------------------------------------------------------------------------------------------------ calls

    async def _send(self, method: str, path: str, body: bytes | torch.Tensor = b"") -> Any:
        status, content = await self._http.send(method, path, body)
        if status != 200:
            raise wire.read_error(content)
        return json.loads(content)

    async def _while_alive(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return what a call returns, or raise once the server is dead.

        Raises:
            EngineDiedError: It is.
        """
        if self._death is None:
            raise EngineError("The engine has not been started; call start() first.")
        death = self._death
        if death.done():
            raise EngineDiedError(str(death.result()))
        task = asyncio.ensure_future(work())
        try:
            await asyncio.wait([task, death], return_when=asyncio.FIRST_COMPLETED)  # type: ignore[type-var]
            if task.done():
                return task.result()
        except OSError as error:
            self._die(f"{type(error).__name__}: {error}")
        finally:
            task.cancel()
        raise EngineDiedError(str(death.result() if death.done() else "the engine server is gone"))

    async def _call(self, path: str, message: object = None) -> Any:
        return await self._while_alive(lambda: self._send("POST", path, wire.to_bytes(message or {})))

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        """Have the server generate the response to a request; see ``GenerationEngine``.

        Raises:
            EngineDiedError: The server is gone.
            EngineError: The engine refuses the request.
        """
        if request.request_id in self._in_flight:
            raise EngineError(f"Request '{request.request_id}' is already running; choose another id.")
        self._in_flight.add(request.request_id)
        try:
            named = dataclasses.replace(request, request_id=self._own(request.request_id))
            result = wire.read_result(await self._call("/generate", named))
        finally:
            self._in_flight.discard(request.request_id)
        return dataclasses.replace(result, request_id=request.request_id)

    def _own(self, request_id: str) -> str:
        """Return the id under which the server knows a request: those of several clients may be alike."""
        return f"{self._name}/{request_id}"

    async def abort(self, request_ids: Sequence[str] | None = None) -> None:
        """End requests of this client with what they have; see ``GenerationEngine``."""
        names = self._in_flight if request_ids is None else self._in_flight.intersection(request_ids)
        if names:
            await self._call("/abort", {"request_ids": [self._own(name) for name in names]})

    async def pause(self, mode: PauseMode = "abort") -> None:
        """Stop generating, for all clients of the server; see ``GenerationEngine``.

        Raises:
            WeightSyncError: Another client updates the server's weights.
        """
        await self._take_lease()
        await self._call("/pause", {"mode": mode})

    async def resume(self) -> None:
        """Go on generating."""
        await self._call("/resume")

    async def _take_lease(self) -> None:
        """Become the client that replaces the weights; waits out the lease of a predecessor that has died."""
        if self._has_lease:
            return
        seconds = self._patience.lease_seconds
        deadline = asyncio.get_running_loop().time() + seconds + self._patience.health_interval_seconds
        while True:
            try:
                self._read_state(await self._call("/lease", {"seconds": seconds}))
            except WeightSyncError:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                self._has_lease = True
                return

    async def begin_update(self, manifest: Manifest) -> None:
        """Get ready for new weights; see ``GenerationEngine``.

        Raises:
            WeightSyncError: The engine refuses them, or another client updates the server's weights.
        """
        await self._take_lease()
        # How the buckets came here is of no concern to the server.
        await self._call("/update/begin", manifest.content)
        self._state_number += 1
        self._is_synced = False

    async def load_bucket(self, index: int, bucket: torch.Tensor) -> None:
        """Send one bucket, which the server compares with its checksum; see ``GenerationEngine``.

        Raises:
            WeightSyncError: The checksum is wrong, or no update has begun.
        """
        await self._while_alive(lambda: self._send("PUT", f"/update/bucket/{index}", bucket.cpu()))

    async def commit(self) -> None:
        """End the update; see ``GenerationEngine``.

        Raises:
            WeightSyncError: A bucket is missing.
        """
        self._read_state(await self._call("/update/commit"))
        self.ailment = ""

    def _read_state(self, state: dict[str, Any]) -> None:
        self._state_number += 1
        self._version, self._is_synced = int(state["version"]), bool(state["is_synced"])

    async def sleep(self) -> None:
        """Give back the memory of the server's weights and caches."""
        await self._take_lease()
        await self._call("/sleep")

    async def wake(self) -> None:
        """Take the memory again."""
        await self._take_lease()
        await self._call("/wake")

    async def read_weights(self, names: Sequence[str]) -> dict[str, torch.Tensor] | None:
        """Return weights by the names they were loaded under; None where the server's engine cannot."""
        body = wire.to_bytes({"names": list(names)})
        status, content = await self._while_alive(lambda: self._http.send("POST", "/weights", body))
        if status != 200:
            raise wire.read_error(content)
        return None if content == b"null" else read_tensors(content)

    async def stats(self) -> EngineStats:
        """Return what the server's engine is doing."""
        return wire.read_stats(await self._while_alive(lambda: self._send("GET", "/stats")))

    async def health(self) -> None:
        """Return if the server's engine can generate.

        Raises:
            EngineError: It cannot.
        """
        if not await self.can_generate():
            raise EngineDiedError(f"The engine server {self.base_url} cannot generate: {self.ailment}.")

    async def close(self) -> None:
        """Give back the lease, and hang up; the server goes on."""
        loop, self._loop = self._loop, None
        if loop is None or loop is asyncio.get_running_loop():
            await self._close()
        elif loop.is_running():
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._close(), loop))

    async def _close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        if self._has_lease and self.is_alive:
            with contextlib.suppress(EngineError, WeightSyncError, asyncio.TimeoutError):
                await asyncio.wait_for(self._call("/lease", {"seconds": 0}), self._patience.timeout_seconds)
        self._die("it has been closed")
        await self._http.close()
