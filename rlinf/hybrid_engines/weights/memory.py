"""Memory of buckets on the host, used again once no tensor lies in it."""

from __future__ import annotations

import weakref
from collections import defaultdict
from typing import Any

import numpy as np
import torch


class BucketMemory:
    """Hands out memory; fresh pages cost several times what copying into known ones does."""

    def __init__(self) -> None:
        self._spare: defaultdict[int, list[np.ndarray[Any, Any]]] = defaultdict(list)

    def allocate(self, num_bytes: int) -> torch.Tensor:
        """Return uint8 memory of this size, which may hold anything.

        It is handed out again when the tensor and all its views are gone, those that parameters became included.
        """
        spare = self._spare[num_bytes]
        memory = spare.pop() if spare else np.zeros(num_bytes, np.uint8)
        # The tensor and its views keep this array, and nothing else does.
        array = memory[:]
        weakref.finalize(array, spare.append, memory).atexit = False
        return torch.from_numpy(array)

    def clear(self) -> None:
        """Give back what no tensor lies in."""
        self._spare.clear()
