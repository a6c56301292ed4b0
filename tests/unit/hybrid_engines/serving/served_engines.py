"""Servers of engines in a thread of this process, and an engine that computes nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Sequence
from typing import TypeVar

import torch

from rlinf.data.messages.generation import Completion, EngineStats, GenerationRequest, GenerationResult
from rlinf.errors import EngineError, WeightSyncError
from rlinf.hybrid_engines.generation.generation_engine import GenerationEngine, PauseMode
from rlinf.hybrid_engines.serving.engine_server import EngineServer
from rlinf.hybrid_engines.serving.remote_engine import Patience
from rlinf.hybrid_engines.weights.bucket import Manifest, WeightUpdate

T = TypeVar("T")

PATIENT = Patience(timeout_seconds=60.0, health_interval_seconds=0.2, start_timeout_seconds=60.0)


class TokenEngine(GenerationEngine):
    """Completes prompts with their number of tokens; a test says when."""

    def __init__(self) -> None:
        self._version, self.is_complete = -1, True
        self.requests: list[GenerationRequest] = []
        self.aborted: list[str] = []
        self.calls: list[str] = []
        self.weights: dict[str, torch.Tensor] = {}
        self.refuses = ""
        self.fails = False
        self.healthy = asyncio.Event()
        self.free = asyncio.Event()
        self.healthy.set()
        self.free.set()
        self.update: WeightUpdate | None = None

    @property
    def version(self) -> int:
        return self._version

    @property
    def is_synced(self) -> bool:
        return self._version >= 0 and self.is_complete

    async def start(self) -> None:
        self.calls.append("start")

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        self.requests.append(request)
        if self.refuses:
            raise EngineError(self.refuses)
        try:
            await self.free.wait()
        except asyncio.CancelledError:
            self.aborted.append(request.request_id)
            raise
        completion = Completion(
            token_ids=(len(request.prompt_ids), 2),
            logprobs=(-0.1, -1 / 3),
            full_logprobs=(-0.2, -2 / 3) if request.params.truncates else None,
            versions=(self._version,) * 2,
            finish_reason="abort" if request.request_id in self.aborted else "stop",
        )
        return GenerationResult(request_id=request.request_id, completions=(completion,) * request.params.n)

    async def abort(self, request_ids: Sequence[str] | None = None) -> None:
        self.aborted.extend(request_ids or ())
        self.free.set()

    async def pause(self, mode: PauseMode = "abort") -> None:
        self.calls.append(f"pause {mode}")

    async def resume(self) -> None:
        self.calls.append("resume")

    async def begin_update(self, manifest: Manifest) -> None:
        self.update = WeightUpdate(manifest, current_version=self._version)
        self.is_complete = False

    async def load_bucket(self, index: int, bucket: torch.Tensor) -> None:
        if self.update is None:
            raise WeightSyncError("No weight update has begun; call begin_update().")
        self.weights.update(self.update.take(index, bucket))

    async def commit(self) -> None:
        assert self.update is not None
        self._version = self.update.finish()
        self.is_complete = True

    async def reset_version(self) -> None:
        self._version = -1

    async def sleep(self) -> None:
        self.calls.append("sleep")

    async def wake(self) -> None:
        self.calls.append("wake")

    async def read_weights(self, names: Sequence[str]) -> dict[str, torch.Tensor] | None:
        return {name: self.weights[name] for name in names} if self.weights else None

    async def stats(self) -> EngineStats:
        return EngineStats(num_running=1, num_waiting=2, num_generated_tokens=len(self.requests), version=self._version)

    async def health(self) -> None:
        await self.healthy.wait()
        if self.fails:
            raise EngineError("the device is gone")

    async def close(self) -> None:
        self.calls.append("close")


class ServerThread:
    """A server with an event loop of its own.

    Args:
        engine: To be served.
        token: See ``EngineServer``.
        port: Where it listens; 0 chooses.
    """

    def __init__(self, engine: GenerationEngine, *, token: str = "", port: int = 0) -> None:
        self.engine = engine
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.server = EngineServer(engine, description={"max_context_tokens": 256}, token=token)
        self.url = self.run(self.server.start("127.0.0.1", port))
        self.run(self.server.load(), timeout=280)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def run(self, awaitable: Awaitable[T], timeout: float = 60) -> T:
        async def wait() -> T:
            return await awaitable

        return asyncio.run_coroutine_threadsafe(wait(), self.loop).result(timeout)

    def set(self, event: asyncio.Event, *, to: bool = True) -> None:
        """Set or clear an event of the engine."""
        self.loop.call_soon_threadsafe(event.set if to else event.clear)

    def close(self) -> None:
        """End the server: its connections break."""
        if self._thread.is_alive():
            self.run(self.server.close())
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(30)
