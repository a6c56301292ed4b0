"""The interface of generation engines."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Literal

import torch

from rlinf.data.messages.generation import EngineStats, GenerationRequest, GenerationResult
from rlinf.errors import EngineError
from rlinf.hybrid_engines.weights.bucket import Manifest

PauseMode = Literal["abort", "wait", "keep"]
"""What becomes of requests in flight: ``abort`` ends them with what they have; ``wait`` lets them end; ``keep`` holds
them and goes on after ``resume``, by then with a new key-value cache if weights have changed."""


class GenerationEngine(abc.ABC):
    """A language model that serves many requests at a time, and whose weights are replaced between steps.

    All methods are coroutines of one event loop. The engine may generate in a thread or process of its own; a failure
    there ends every request and every later call with ``EngineError``, whose cause it is.

    An engine is built as ``generation_engines.get(name)(cfg, model_path=..., device=..., precision=..., seed=...,
    max_context_tokens=...)``: the ``rollout`` section, a folder with a model and its tokenizer in Hugging Face's
    layout, where and in which precision to compute, the seed of requests that have none of their own, and the most
    tokens of a prompt and its response together. Where the section has no ``routes_obstacle``, also with
    ``returns_routes=True``: completions then have ``routes``.
    """

    @property
    @abc.abstractmethod
    def version(self) -> int:
        """Version of the weights; -1 for those that the engine was built with."""

    @property
    @abc.abstractmethod
    def is_synced(self) -> bool:
        """Whether all weights are there from updates, so that one may replace some of them (``is_partial``)."""

    @abc.abstractmethod
    async def start(self) -> None:
        """Load the model and get ready; called once, before anything else.

        Raises:
            EngineError: It could not.
        """

    @abc.abstractmethod
    async def generate(self, request: GenerationRequest) -> GenerationResult:
        """Generate the response to a request; any number of calls may run at once, and each returns when it is done.

        Cancelling the call aborts the request.

        Raises:
            EngineError: The request asks for what the engine cannot do (the message names the field), is longer than
                the context, or the engine has failed.
        """

    @abc.abstractmethod
    async def abort(self, request_ids: Sequence[str] | None = None) -> None:
        """End requests with what they have: their ``generate`` returns with ``finish_reason`` ``abort``.

        Args:
            request_ids: Which; unknown ones (ended meanwhile) are passed over. None ends all.
        """

    @abc.abstractmethod
    async def pause(self, mode: PauseMode = "abort") -> None:
        """Stop generating; returns once nothing is. Requests that arrive meanwhile wait for ``resume``."""

    @abc.abstractmethod
    async def resume(self) -> None:
        """Go on generating."""

    @abc.abstractmethod
    async def begin_update(self, manifest: Manifest) -> None:
        """Get ready for new weights; the engine must be paused or idle.

        Raises:
            WeightSyncError: The version is older than the present one, requests are being generated, or the update is
                partial and the engine is not ``is_synced``.
        """

    @abc.abstractmethod
    async def load_bucket(self, index: int, bucket: torch.Tensor) -> None:
        """Load one bucket, uint8, once its checksum has been compared (here, unless the manifest ``is_checked``).

        Weights may be views of the bucket until the next update if the manifest ``is_lasting``.

        Raises:
            WeightSyncError: The checksum is wrong, or no update has begun.
        """

    @abc.abstractmethod
    async def commit(self) -> None:
        """End the update: forget everything computed with the old weights, and take the manifest's version.

        Raises:
            WeightSyncError: A bucket is missing. The engine then refuses to generate until an update is complete.
        """

    async def reset_version(self) -> None:
        """Forget the version, and that weights came from updates: another client will number and send its own.

        Raises:
            EngineError: The engine cannot.
        """
        raise EngineError(f"{type(self).__name__} cannot take the weights of a second run; start the server anew.")

    @abc.abstractmethod
    async def sleep(self) -> None:
        """Give back the memory of weights and caches, as far as the engine can; it must be idle."""

    @abc.abstractmethod
    async def wake(self) -> None:
        """Take the memory again; weights are undefined until an update is complete, unless they were kept."""

    @abc.abstractmethod
    async def read_weights(self, names: Sequence[str]) -> dict[str, torch.Tensor] | None:
        """Return weights by the names they were loaded under, on the host; None where the engine cannot."""

    @abc.abstractmethod
    async def stats(self) -> EngineStats:
        """Return what the engine is doing."""

    @abc.abstractmethod
    async def health(self) -> None:
        """Return if the engine can generate.

        Raises:
            EngineError: It cannot.
        """

    @abc.abstractmethod
    async def close(self) -> None:
        """Abort everything and end what the engine has started; never raises for requests in flight."""
