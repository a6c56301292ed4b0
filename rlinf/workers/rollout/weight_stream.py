"""The weights that an actor rank publishes, as a rollout worker takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rlinf.hybrid_engines.weights.bucket import Manifest, WeightReceiver
from rlinf.scheduler.comm.work import AsyncWork, default_timeout_seconds


class WeightStream:
    """Loads published weights when they are needed, or as soon as they are there.

    Args:
        receiver: The model.
        receive: Begins to receive the next message of the stream: a manifest, or one of its buckets. It must not time
            out by itself: while the actor trains, nothing is due.
    """

    def __init__(self, receiver: WeightReceiver, receive: Callable[[], AsyncWork[Any]]) -> None:
        self._receiver = receiver
        self._receive = receive
        self._next: AsyncWork[Any] | None = None

    @property
    def version(self) -> int:
        """Version in use; -1 before the first."""
        return self._receiver.version

    def take_arrived(self) -> None:
        """Load the newest weights that have arrived, if any have, without waiting for others."""
        newest = None
        while self._announced().done():
            newest = self._take()
        if newest is not None:
            self._receiver.load(*newest)

    def wait_for(self, version: int) -> None:
        """Wait until the weights in use are of ``version`` or newer.

        Raises:
            WorkerDiedError: The actor is gone.
            CommTimeoutError: They did not come in time.
        """
        self.take_arrived()
        while self.version < version:
            self._receiver.load(*self._take())

    def _announced(self) -> AsyncWork[Any]:
        if self._next is None:
            self._next = self._receive()
        return self._next

    def _take(self) -> tuple[Manifest, list[torch.Tensor]]:
        seconds = default_timeout_seconds()
        manifest: Manifest = self._announced().wait(seconds)
        self._next = None
        # The buckets follow at once.
        return manifest, [self._receive().wait(seconds) for _ in manifest.bucket_sizes]
