"""What one worker's operators and kernels cost: ``torch.profiler`` around a part of its life."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from rlinf.config.schema.cluster import ProfilingConfig


@dataclass
class WorkerProfile:
    """A profile that is being taken, of the thread that began it.

    Attributes:
        path: The file to write.
        profiler: Records until ``finish``.
    """

    path: Path
    profiler: torch.profiler.profile

    @classmethod
    def begin(cls, path: Path, options: ProfilingConfig) -> WorkerProfile:
        """Begin to record.

        Args:
            path: The file to write, in Chrome's trace format.
            options: What to record.
        """
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        profiler = torch.profiler.profile(
            activities=activities,
            record_shapes=options.record_shapes,
            profile_memory=options.profile_memory,
            with_stack=options.with_stack,
        )
        profiler.start()
        return cls(path, profiler)

    def finish(self) -> None:
        """Stop recording and write the file atomically: a reader sees all of it or none."""
        self.profiler.stop()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_name(f".{self.path.stem}.{uuid.uuid4().hex[:8]}.tmp.json")
        self.profiler.export_chrome_trace(str(temporary))
        temporary.replace(self.path)
