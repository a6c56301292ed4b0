"""Spreads requests over several servers of engines."""

from __future__ import annotations

import asyncio
import sys
import zlib
from collections.abc import Awaitable, Callable, Sequence

import torch

from rlinf.data.messages.generation import Completion, EngineStats, GenerationRequest, GenerationResult
from rlinf.errors import EngineDiedError, EngineError, RLinfError, WeightSyncError
from rlinf.hybrid_engines.generation.engine_choice import choose_engine
from rlinf.hybrid_engines.generation.generation_engine import GenerationEngine, PauseMode
from rlinf.hybrid_engines.serving.remote_engine import RemoteEngine
from rlinf.hybrid_engines.weights.bucket import Manifest
from rlinf.utils.logging import get_logger


class RoutedEngine(GenerationEngine):
    """Several servers that hold the same weights, as one engine.

    A request goes to the server with the fewest in flight; those of a ``prefix_group`` go to one server while that is
    not clearly more loaded than another. Requests of a server that dies or hangs are sent to another, where they start
    again: with a seed they sample the same. A server that comes back, or that has missed an update of the weights, is
    used again once it has the weights of the others.

    Args:
        servers: At least one.
    """

    def __init__(self, servers: Sequence[RemoteEngine]) -> None:
        self._servers = list(servers)
        self._load = [0] * len(self._servers)
        self._version = -1
        self._updating: list[RemoteEngine] = []
        self._aborted: set[str] = set()
        self._in_flight: set[str] = set()

    @property
    def version(self) -> int:
        """Version of the weights; -1 for those that the engines were built with."""
        return self._version

    @property
    def is_synced(self) -> bool:
        """Whether every server that answers has all weights from updates."""
        alive = self._alive()
        return self._version >= 0 and bool(alive) and all(server.is_synced for server in alive)

    def _alive(self) -> list[RemoteEngine]:
        return [server for server in self._servers if server.is_alive]

    def _usable(self) -> list[int]:
        """Return the numbers of the servers that requests can go to."""
        return [number for number, server in enumerate(self._servers) if self._can_serve(server)]

    def _can_serve(self, server: RemoteEngine) -> bool:
        if server in self._updating:
            return server.is_alive
        return server.is_usable and (self._version < 0 or server.version == self._version)

    async def start(self) -> None:
        """Wait until all servers are healthy.

        Raises:
            EngineError: One was not in time.
        """
        await asyncio.gather(*(server.start() for server in self._servers))

    # ------------------------------------------------------------------------------------------------ requests

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        """Have one of the servers generate the response; see ``GenerationEngine``.

        Raises:
            EngineDiedError: No server is left.
            EngineError: The engine refuses the request.
        """
        name = request.request_id
        if name in self._in_flight:
            raise EngineError(f"Request '{name}' is already running; choose another id.")
        self._in_flight.add(name)
        try:
            while True:
                number = self._choose(request)
                self._load[number] += 1
                try:
                    return await self._servers[number].generate(request)
                except EngineDiedError as error:
                    self._log(f"{error}; request '{name}' is sent to another server.")
                except EngineError:
                    # Refused, which no other server would do differently, unless this one has failed as a whole.
                    if await self._servers[number].can_generate():
                        raise
                finally:
                    self._load[number] -= 1
                if name in self._aborted:
                    return _aborted_result(request)
        finally:
            self._in_flight.discard(name)
            self._aborted.discard(name)

    def _choose(self, request: GenerationRequest) -> int:
        usable = self._usable()
        if not usable:
            reasons = "; ".join(f"{s.base_url}: {s.ailment or 'lacks the newest weights'}" for s in self._servers)
            raise EngineDiedError(f"No engine server can generate ({reasons}).")
        load = [self._load[number] if number in usable else sys.maxsize for number in range(len(self._servers))]
        if not request.prefix_group:
            return load.index(min(load))
        return choose_engine(load, zlib.crc32(request.prefix_group.encode()) % len(load))

    async def abort(self, request_ids: Sequence[str] | None = None) -> None:
        """End requests with what they have; see ``GenerationEngine``."""
        names = self._in_flight if request_ids is None else self._in_flight.intersection(request_ids)
        self._aborted |= names
        await self._each(self._alive(), lambda server: server.abort(request_ids))

    async def pause(self, mode: PauseMode = "abort") -> None:
        """Stop generating, on all servers; see ``GenerationEngine``."""
        if mode == "abort":
            self._aborted |= self._in_flight
        await self._each(self._alive(), lambda server: server.pause(mode))

    async def resume(self) -> None:
        """Go on generating."""
        await self._each(self._alive(), lambda server: server.resume())

    # ------------------------------------------------------------------------------------------------ weights

    async def begin_update(self, manifest: Manifest) -> None:
        """Get all servers that answer ready for new weights; see ``GenerationEngine``.

        Raises:
            WeightSyncError: None can take them.
        """
        self._updating = await self._each(self._alive(), lambda server: server.begin_update(manifest))

    async def load_bucket(self, index: int, bucket: torch.Tensor) -> None:
        """Send one bucket to all servers; see ``GenerationEngine``.

        Raises:
            WeightSyncError: None has loaded it.
        """
        updating = self._begun()
        self._updating = await self._each(updating, lambda server: server.load_bucket(index, bucket))

    async def commit(self) -> None:
        """End the update; see ``GenerationEngine``.

        Raises:
            WeightSyncError: No server has all of it.
        """
        updating, self._updating = self._begun(), []
        done = await self._each(updating, lambda server: server.commit())
        self._version = done[0].version

    def _begun(self) -> list[RemoteEngine]:
        if not self._updating:
            raise WeightSyncError("No weight update has begun; call begin_update() with its manifest first.")
        return self._updating

    async def sleep(self) -> None:
        """Give back the memory of all servers' weights and caches."""
        await self._each(self._alive(), lambda server: server.sleep())

    async def wake(self) -> None:
        """Take the memory again."""
        await self._each(self._alive(), lambda server: server.wake())

    async def read_weights(self, names: Sequence[str]) -> dict[str, torch.Tensor] | None:
        """Return weights by the names they were loaded under, of one server; None where it cannot."""
        number = next(iter(self._usable()), 0)
        return await self._servers[number].read_weights(names)

    # ------------------------------------------------------------------------------------------------ the rest

    async def stats(self) -> EngineStats:
        """Return what the servers are doing, together."""
        found: list[EngineStats] = []

        async def add(server: RemoteEngine) -> None:
            found.append(await server.stats())

        await self._each(self._alive(), add)
        return EngineStats(
            num_running=sum(stats.num_running for stats in found),
            num_waiting=sum(stats.num_waiting for stats in found),
            num_generated_tokens=sum(stats.num_generated_tokens for stats in found),
            version=self._version,
        )

    async def health(self) -> None:
        """Return if a server can generate.

        Raises:
            EngineError: None can.
        """
        await self._each(self._alive(), lambda server: server.health())

    async def close(self) -> None:
        """Hang up; the servers go on."""
        await asyncio.gather(*(server.close() for server in self._servers), return_exceptions=True)

    async def _each(
        self, servers: Sequence[RemoteEngine], call: Callable[[RemoteEngine], Awaitable[None]]
    ) -> list[RemoteEngine]:
        """Make a call to several servers at once; return those where it succeeded.

        Raises:
            RLinfError: It failed on all of them.
        """
        if not servers:
            raise EngineDiedError("No engine server can be reached.")
        results = await asyncio.gather(*map(call, servers), return_exceptions=True)
        failures = [error for error in results if isinstance(error, BaseException)]
        for error in failures:
            if not isinstance(error, RLinfError):
                raise error
        if len(failures) == len(servers):
            # An engine that refuses something says more than one that is gone.
            raise next((error for error in failures if not isinstance(error, EngineDiedError)), failures[0])
        for error in failures:
            self._log(f"{error}; the other engine servers go on.")
        return [
            server for server, result in zip(servers, results, strict=True) if not isinstance(result, BaseException)
        ]

    def _log(self, text: str) -> None:
        get_logger(__name__).warning(text)


def _aborted_result(request: GenerationRequest) -> GenerationResult:
    """Return the result of a request that was aborted while its server died: without the tokens so far."""
    nothing = Completion(
        token_ids=(),
        logprobs=(),
        full_logprobs=() if request.params.truncates else None,
        versions=(),
        finish_reason="abort",
    )
    return GenerationResult(request_id=request.request_id, completions=(nothing,) * request.params.n)
