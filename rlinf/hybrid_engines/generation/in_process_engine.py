"""The base of in-process engines: an executor thread steps a model runner, coroutines submit requests to it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path

import torch

from rlinf.data.messages.generation import EngineStats, GenerationRequest, GenerationResult
from rlinf.errors import EngineError
from rlinf.hybrid_engines.generation.engine_scheduler import EngineScheduler
from rlinf.hybrid_engines.generation.executor_thread import ExecutorThread, ThreadFuture
from rlinf.hybrid_engines.generation.generation_engine import GenerationEngine, PauseMode
from rlinf.hybrid_engines.generation.model_runner import ModelRunner, RunnerLimits
from rlinf.hybrid_engines.generation.requests import check_request
from rlinf.hybrid_engines.weights.bucket import Manifest


class InProcessEngine(GenerationEngine):
    """An engine whose model runner advances all running sequences by one step at a time, on an executor thread.

    Calls of coroutines run between two steps, in the order of submission.

    Args:
        model_runner: The model.
        name: Of the engine, for messages.
        model_path: Folder with the model and its tokenizer.
        seed: Of requests that have none of their own.
        max_context_tokens: Most tokens of a prompt and its response together.
    """

    def __init__(
        self, model_runner: ModelRunner, *, name: str, model_path: str | Path, seed: int, max_context_tokens: int
    ) -> None:
        self._max_context_tokens = max_context_tokens
        self._scheduler = EngineScheduler(
            model_runner, model_path=Path(model_path), seed=seed, max_context_tokens=max_context_tokens
        )
        self._thread = ExecutorThread(name, work=self._scheduler.work, ended=self._end)
        self._limits: RunnerLimits | None = None
        self._started = False

    @property
    def version(self) -> int:
        """Version of the weights; -1 for those that the engine was built with."""
        return self._scheduler.version

    @property
    def is_synced(self) -> bool:
        """Whether all weights are there from updates, so that one may replace some of them (``is_partial``)."""
        return self._scheduler.is_synced

    async def start(self) -> None:
        """Load the model and get ready; called once, before anything else.

        Raises:
            EngineError: It could not.
        """
        self._started = True
        self._thread.start()
        self._limits = await self._thread.call(self._scheduler.load)

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        """Generate the response to a request; any number of calls may run at once, and each returns when it is done.

        Cancelling the call aborts the request.

        Raises:
            EngineError: The request asks for what the engine cannot do (the message names the field), is longer than
                the context, or the engine has failed.
        """
        if self._limits is None:
            raise EngineError("The engine has not been started; call start() first.")
        vocab_size = self._limits.vocab_size
        check_request(request, max_context_tokens=self._max_context_tokens, vocab_size=vocab_size)
        reply: ThreadFuture[GenerationResult] = ThreadFuture()
        self._thread.post(lambda: self._scheduler.enter(request, reply))
        try:
            return await reply
        except asyncio.CancelledError:
            with contextlib.suppress(EngineError):
                self._thread.post(lambda: self._scheduler.abandon(reply))
            raise

    async def abort(self, request_ids: Sequence[str] | None = None) -> None:
        """End requests with what they have: their ``generate`` returns with ``finish_reason`` ``abort``.

        Args:
            request_ids: Which; unknown ones (ended meanwhile) are passed over. None ends all.
        """
        await self._thread.call(lambda: self._scheduler.abort(request_ids))

    async def pause(self, mode: PauseMode = "abort") -> None:
        """Stop generating; returns once nothing is. Requests that arrive meanwhile wait for ``resume``."""
        paused: ThreadFuture[None] = ThreadFuture()
        self._thread.post(lambda: self._scheduler.pause(mode, paused))
        await paused

    async def resume(self) -> None:
        """Go on generating.

        Raises:
            EngineError: The weights are incomplete since an update failed or the engine slept.
        """
        await self._thread.call(self._scheduler.resume)

    async def begin_update(self, manifest: Manifest) -> None:
        """Get ready for new weights; the engine must be paused or idle.

        Requests in flight are held, and computed anew with the new weights when they go on.

        Raises:
            WeightSyncError: The version is older than the present one, the tensors are not the model's, requests are
                being generated, or the update is partial and the engine is not ``is_synced``.
        """
        await self._thread.call(lambda: self._scheduler.begin_update(manifest))

    async def load_bucket(self, index: int, bucket: torch.Tensor) -> None:
        """Load one bucket, uint8, once its checksum has been compared with the manifest's.

        Raises:
            WeightSyncError: The checksum is wrong, or no update has begun.
        """
        await self._thread.call(lambda: self._scheduler.load_bucket(index, bucket))

    async def commit(self) -> None:
        """End the update: forget everything computed with the old weights, and take the manifest's version.

        Raises:
            WeightSyncError: A bucket is missing. The engine then refuses to generate until an update is complete.
        """
        await self._thread.call(self._scheduler.commit)

    async def reset_version(self) -> None:
        """Forget the version, and that weights came from updates: another client will number and send its own."""
        await self._thread.call(self._scheduler.reset_version)

    async def sleep(self) -> None:
        """Give back the memory of weights and caches, as far as the engine can; it must be idle or paused.

        Raises:
            EngineError: Requests are being generated.
        """
        await self._thread.call(self._scheduler.sleep)

    async def wake(self) -> None:
        """Take the memory again; weights are undefined until an update is complete, unless they were kept."""
        await self._thread.call(self._scheduler.wake)

    async def read_weights(self, names: Sequence[str]) -> dict[str, torch.Tensor] | None:
        """Return weights by the names they were loaded under, on the host; None where the engine cannot."""
        return await self._thread.call(lambda: self._scheduler.model_runner.read_weights(names))

    async def stats(self) -> EngineStats:
        """Return what the engine is doing."""
        return await self._thread.call(self._scheduler.stats)

    async def health(self) -> None:
        """Return if the engine can generate.

        Raises:
            EngineError: It cannot.
        """
        if not self._started:
            raise EngineError("The engine has not been started; call start() first.")
        await self._thread.call(self._scheduler.check_weights)

    async def close(self) -> None:
        """Abort everything and end what the engine has started; never raises for requests in flight."""
        if self._started:
            await asyncio.to_thread(self._thread.close)

    def _end(self, failure: BaseException | None) -> None:
        self._scheduler.end(None if failure is None else self._thread.error)
