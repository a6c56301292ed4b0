"""The base of engines that generate in this process: a thread steps a backend, coroutines ask it for answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path

import torch

from rlinf.data.generation import EngineStats, GenerationRequest, GenerationResult
from rlinf.errors import EngineError
from rlinf.hybrid_engines.generation.backend import BackendLimits, StepBackend
from rlinf.hybrid_engines.generation.base import GenerationEngine, PauseMode
from rlinf.hybrid_engines.generation.replies import OwnerThread, Reply
from rlinf.hybrid_engines.generation.requests import check_request
from rlinf.hybrid_engines.generation.schedule import Schedule
from rlinf.hybrid_engines.weights.bucket import Manifest


class SteppingEngine(GenerationEngine):
    """An engine whose backend advances all running answers by one step at a time, on a thread that owns both.

    What coroutines ask for is done between two steps, in the order in which it was asked.

    Args:
        backend: The model.
        name: Of the engine, for messages.
        model_path: Folder with the model and its tokenizer.
        seed: Of draws that have none of their own.
        max_context_tokens: Most tokens of a prompt and its answer together.
    """

    def __init__(
        self, backend: StepBackend, *, name: str, model_path: str | Path, seed: int, max_context_tokens: int
    ) -> None:
        self._max_context_tokens = max_context_tokens
        self._schedule = Schedule(
            backend, model_path=Path(model_path), seed=seed, max_context_tokens=max_context_tokens
        )
        self._thread = OwnerThread(name, work=self._schedule.work, ended=self._end)
        self._limits: BackendLimits | None = None
        self._started = False

    @property
    def version(self) -> int:
        """Version of the weights; -1 for those that the engine was built with."""
        return self._schedule.version

    @property
    def is_synced(self) -> bool:
        """Whether all weights are there from updates, so that one may replace some of them (``is_partial``)."""
        return self._schedule.is_synced

    async def start(self) -> None:
        """Load the model and get ready; called once, before anything else.

        Raises:
            EngineError: It could not.
        """
        self._started = True
        self._thread.start()
        self._limits = await self._thread.call(self._schedule.load)

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        """Answer a request. Any number may be asked at once; each is answered when it is done.

        Cancelling the call aborts the request.

        Raises:
            EngineError: The request asks for what the engine cannot do (the message names the field), is longer than
                the context, or the engine has failed.
        """
        if self._limits is None:
            raise EngineError("The engine has not been started; call start() first.")
        vocab_size = self._limits.vocab_size
        check_request(request, max_context_tokens=self._max_context_tokens, vocab_size=vocab_size)
        reply: Reply[GenerationResult] = Reply()
        self._thread.post(lambda: self._schedule.enter(request, reply))
        try:
            return await reply
        except asyncio.CancelledError:
            with contextlib.suppress(EngineError):
                self._thread.post(lambda: self._schedule.abandon(reply))
            raise

    async def abort(self, request_ids: Sequence[str] | None = None) -> None:
        """End requests with what they have: their ``generate`` returns with ``finish_reason`` ``abort``.

        Args:
            request_ids: Which; unknown ones (ended meanwhile) are passed over. None ends all.
        """
        await self._thread.call(lambda: self._schedule.abort(request_ids))

    async def pause(self, mode: PauseMode = "abort") -> None:
        """Stop generating; returns once nothing is. Requests that come meanwhile wait for ``resume``."""
        paused: Reply[None] = Reply()
        self._thread.post(lambda: self._schedule.pause(mode, paused))
        await paused

    async def resume(self) -> None:
        """Go on generating.

        Raises:
            EngineError: The weights are incomplete since an update failed or the engine slept.
        """
        await self._thread.call(self._schedule.resume)

    async def begin_update(self, manifest: Manifest) -> None:
        """Get ready for new weights; the engine must be paused or idle.

        Requests in flight are held, and computed anew with the new weights when they go on.

        Raises:
            WeightSyncError: The version is older than the present one, the tensors are not the model's, requests are
                being generated, or the update is partial and the engine is not ``is_synced``.
        """
        await self._thread.call(lambda: self._schedule.begin_update(manifest))

    async def load_bucket(self, index: int, bucket: torch.Tensor) -> None:
        """Load one bucket, uint8, once its checksum has been compared with the manifest's.

        Raises:
            WeightSyncError: The checksum is wrong, or no update has begun.
        """
        await self._thread.call(lambda: self._schedule.load_bucket(index, bucket))

    async def commit(self) -> None:
        """End the update: forget everything computed with the old weights, and take the manifest's version.

        Raises:
            WeightSyncError: A bucket is missing. The engine then refuses to generate until an update is complete.
        """
        await self._thread.call(self._schedule.commit)

    async def sleep(self) -> None:
        """Give back the memory of weights and caches, as far as the engine can; it must be idle or paused.

        Raises:
            EngineError: Requests are being generated.
        """
        await self._thread.call(self._schedule.sleep)

    async def wake(self) -> None:
        """Take the memory again; weights are undefined until an update is complete, unless they were kept."""
        await self._thread.call(self._schedule.wake)

    async def read_weights(self, names: Sequence[str]) -> dict[str, torch.Tensor] | None:
        """Return weights by the names they were loaded under, on the host; None where the engine cannot."""
        return await self._thread.call(lambda: self._schedule.backend.read_weights(names))

    async def stats(self) -> EngineStats:
        """Return what the engine is doing."""
        return await self._thread.call(self._schedule.stats)

    async def health(self) -> None:
        """Return if the engine can generate.

        Raises:
            EngineError: It cannot.
        """
        if not self._started:
            raise EngineError("The engine has not been started; call start() first.")
        await self._thread.call(self._schedule.check_weights)

    async def close(self) -> None:
        """Abort everything and end what the engine has started; never raises for requests in flight."""
        if self._started:
            await asyncio.to_thread(self._thread.close)

    def _end(self, failure: BaseException | None) -> None:
        self._schedule.end(None if failure is None else self._thread.error)
