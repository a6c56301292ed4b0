"""Which steps and workers of a run are profiled, as ``cluster.profiling`` says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlinf.config.schema.cluster import ProfilingConfig
from rlinf.errors import ConfigError
from rlinf.scheduler import WorkerGroup, wait_all


class StepProfiler:
    """Takes ``torch.profiler`` traces of chosen steps and workers.

    Args:
        cfg: The ``cluster.profiling`` section.
        groups: The run's groups by component.
        folder: Where the files go: ``<group>_<rank>_step_<N>.json``.

    Raises:
        ConfigError: A chosen rank does not exist.
    """

    def __init__(self, cfg: ProfilingConfig, groups: Mapping[str, WorkerGroup[Any]], folder: Path) -> None:
        self.cfg = cfg
        self.groups = [groups[name] for name in dict.fromkeys(cfg.groups)] if cfg.enable else []
        self.folder = folder
        for group in self.groups:
            for rank in cfg.ranks:
                if rank >= group.world_size:
                    raise ConfigError(
                        f"cluster.profiling.ranks: received {rank}, but group '{group.name}' has the ranks "
                        f"0-{group.world_size - 1}. Choose among these, or leave its component out of "
                        "cluster.profiling.groups."
                    )

    @contextmanager
    def step(self, step: int) -> Iterator[None]:
        """Profile what the chosen workers do within the block, if ``step`` is one of the chosen steps."""
        if not self.groups or step not in self.cfg.steps:
            yield
            return
        ranks = dict.fromkeys(self.cfg.ranks)
        started = [
            group.execute_on(rank).start_profile(str(self.folder / f"{group.name}_{rank}_step_{step}.json"), self.cfg)
            for group in self.groups
            for rank in ranks
        ]
        wait_all(*started)
        yield
        # Not after a failure: the ranks may be busy or gone, and half a step is no measurement.
        wait_all(*(group.execute_on(*ranks).stop_profile() for group in self.groups))
