"""The weights that the actor group publishes, as a rollout worker takes them."""

from __future__ import annotations

import torch

from rlinf.hybrid_engines.weights.bucket import Manifest, WeightReceiver
from rlinf.workers.weight_inbox import WeightInbox


class WeightStream:
    """Loads published weights when they are needed, or as soon as they are there.

    Args:
        receiver: The model.
        inbox: What the actor group publishes.
    """

    def __init__(self, receiver: WeightReceiver, inbox: WeightInbox) -> None:
        self._receiver = receiver
        self._inbox = inbox

    @property
    def version(self) -> int:
        """Version in use; -1 before the first."""
        return self._receiver.version

    def take_arrived(self) -> None:
        """Load the newest weights that have arrived, if any have, without waiting for others."""
        arrived: list[tuple[Manifest, list[torch.Tensor]]] = []
        while self._inbox.has_arrived():
            update = self._inbox.take()
            # A partial one takes the place of another, a complete one that of all.
            arrived = [one for one in arrived if update[0].is_partial and not one[0].is_partial] + [update]
        for update in arrived:
            self._receiver.load(*update)

    def wait_for(self, version: int) -> None:
        """Wait until the weights in use are of ``version`` or newer.

        Raises:
            WorkerDiedError: The actor is gone.
            CommTimeoutError: They did not come in time.
        """
        self.take_arrived()
        while self.version < version:
            self._receiver.load(*self._inbox.take())
