"""Processes on a cluster: launching workers, calling them, and moving data between them.

Owns everything that touches Ray: the cluster, workers and their groups, send/recv, channels, the manager. It may
import what is above it in the order of layers (errors to envs) and no engine, worker or runner. Placement strategies
live in ``rlinf.placement`` and are re-exported here. A faster way to move bytes replaces ``comm/transport.py``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlinf.placement import AcceleratorType as AcceleratorType
    from rlinf.placement import ComponentPlacement as ComponentPlacement
    from rlinf.placement import FlexiblePlacementStrategy as FlexiblePlacementStrategy
    from rlinf.placement import HybridComponentPlacement as HybridComponentPlacement
    from rlinf.placement import ModelParallelComponentPlacement as ModelParallelComponentPlacement
    from rlinf.placement import NodePlacementStrategy as NodePlacementStrategy
    from rlinf.placement import PackedPlacementStrategy as PackedPlacementStrategy
    from rlinf.placement import Placement as Placement
    from rlinf.placement import PlacementStrategy as PlacementStrategy
    from rlinf.scheduler.accelerator_util import AcceleratorUtil as AcceleratorUtil
    from rlinf.scheduler.address import WorkerAddress as WorkerAddress
    from rlinf.scheduler.address import WorkerInfo as WorkerInfo
    from rlinf.scheduler.channel import Channel as Channel
    from rlinf.scheduler.cluster import Cluster as Cluster
    from rlinf.scheduler.comm.device_transfers import CollectiveGroupOptions as CollectiveGroupOptions
    from rlinf.scheduler.comm.work import AsyncWork as AsyncWork
    from rlinf.scheduler.group import WorkerGroup as WorkerGroup
    from rlinf.scheduler.hardware_info import HardwareInfo as HardwareInfo
    from rlinf.scheduler.results import CompletionQueue as CompletionQueue
    from rlinf.scheduler.results import WorkerGroupFuncResult as WorkerGroupFuncResult
    from rlinf.scheduler.results import wait_all as wait_all
    from rlinf.scheduler.worker import Worker as Worker

_HOMES = {
    "AcceleratorUtil": "rlinf.scheduler.accelerator_util",
    "AcceleratorType": "rlinf.placement",
    "AsyncWork": "rlinf.scheduler.comm.work",
    "Channel": "rlinf.scheduler.channel",
    "Cluster": "rlinf.scheduler.cluster",
    "CollectiveGroupOptions": "rlinf.scheduler.comm.device_transfers",
    "ComponentPlacement": "rlinf.placement",
    "FlexiblePlacementStrategy": "rlinf.placement",
    "HardwareInfo": "rlinf.scheduler.hardware_info",
    "HybridComponentPlacement": "rlinf.placement",
    "ModelParallelComponentPlacement": "rlinf.placement",
    "NodePlacementStrategy": "rlinf.placement",
    "PackedPlacementStrategy": "rlinf.placement",
    "Placement": "rlinf.placement",
    "PlacementStrategy": "rlinf.placement",
    "Worker": "rlinf.scheduler.worker",
    "WorkerAddress": "rlinf.scheduler.address",
    "WorkerGroup": "rlinf.scheduler.group",
    "WorkerGroupFuncResult": "rlinf.scheduler.results",
    "WorkerInfo": "rlinf.scheduler.address",
    "wait_all": "rlinf.scheduler.results",
    "CompletionQueue": "rlinf.scheduler.results",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
