"""Saves of an engine, at once or in the background; at most one is under way."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist

from rlinf.hybrid_engines.train.chunks import PendingWrite, State, plan_write


class CheckpointSaver:
    """Writes checkpoints of an engine; all ranks call each method together."""

    def __init__(self) -> None:
        self._pending: PendingWrite | None = None

    def save(self, path: Path, state: State, *, in_background: bool) -> None:
        """Write what this rank has of a checkpoint, after the former one.

        Args:
            path: The checkpoint's folder.
            state: What this rank has, see ``chunks``.
            in_background: Return when it is copied to host memory; ``finish`` ends the checkpoint.

        Raises:
            CheckpointError: This checkpoint, or the former one, cannot be written. Raised on all ranks.
        """
        self.finish(wait=True)
        pending = plan_write(path, state)
        if in_background:
            pending.start()
            self._pending = pending
        else:
            pending.write()
            pending.finish()

    def finish(self, *, wait: bool) -> bool:
        """End the checkpoint that is being written in the background, if there is one.

        Args:
            wait: For ranks that are still writing; else nothing is ended before all have written.

        Returns:
            Whether nothing is under way any more.

        Raises:
            CheckpointError: A rank could not write. Raised on all ranks.
        """
        if self._pending is None:
            return True
        if not wait and not _on_all_ranks(self._pending.is_written):
            return False
        pending, self._pending = self._pending, None
        pending.finish()
        return True


def _on_all_ranks(is_so: bool) -> bool:
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return is_so
    count = torch.tensor(int(is_so))
    dist.all_reduce(count)
    return int(count) == dist.get_world_size()
