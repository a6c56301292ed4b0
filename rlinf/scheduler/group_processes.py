"""The processes of one worker group: what its cluster needs to know to end them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ray

from rlinf.errors import ClusterError, WorkerDiedError
from rlinf.scheduler.address import WorkerAddress, WorkerInfo
from rlinf.scheduler.runtime import Runtime
from rlinf.scheduler.tracing import TraceCollector

# A worker that is idle exits within this time after the request to; a busy one is killed then.
_SHUTDOWN_SECONDS = 3.0


@dataclass(eq=False)
class GroupProcesses:
    """The processes of a group's newest launch, shared by the group and its cluster.

    Attributes:
        runtime: This process's; None before the launch.
        collector: Collects the workers' traces; None without tracing.
        actors: Ray's actor and its never-finishing call, by rank; empty for a handle to a group launched elsewhere.
        starting: Address of rank 0 while ranks are not ready.
        members: The workers by rank, once all are ready.
    """

    runtime: Runtime | None = None
    collector: TraceCollector | None = None
    actors: list[tuple[Any, Any]] = field(default_factory=list)
    starting: WorkerAddress | None = None
    members: list[WorkerInfo] = field(default_factory=list)


def close_groups(groups: Sequence[GroupProcesses]) -> None:
    """End several groups together, so that busy ranks of all of them share one time of grace."""
    running = [group for group in groups if group.actors]
    if not ray.is_initialized():
        return
    for group in running:
        if group.collector is not None:
            group.collector.gather(group.members)
    for group in running:
        for member in group.members:
            if group.runtime is not None:
                with contextlib.suppress(ClusterError):  # an unreachable worker is killed below
                    group.runtime.endpoint.notify(member.endpoint, "shutdown")
    # Only ranks that got ready listen; the others are killed at once.
    runs = [run for group in running if group.members for _, run in group.actors]
    if runs:
        ray.wait(runs, num_returns=len(runs), timeout=_SHUTDOWN_SECONDS)
    for group in running:
        first = group.members[0].address if group.members else group.starting
        if first is not None and group.runtime is not None:
            with contextlib.suppress(WorkerDiedError, ClusterError):  # the manager may be gone
                group.runtime.query("group_end", first)
        for actor, _ in group.actors:
            ray.kill(actor)
        group.actors, group.members, group.starting = [], [], None
