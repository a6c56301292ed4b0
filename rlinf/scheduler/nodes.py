"""The nodes of a cluster: waiting for them, probing each once, giving them ranks."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rlinf.errors import ClusterError
from rlinf.placement import NodeInfo
from rlinf.placement.accelerator_kinds import VISIBLE_VARIABLES
from rlinf.scheduler.probe import NodeProbe, probe_node
from rlinf.scheduler.ray_calls import LIMIT_VARIABLE, results_of, start_limit_seconds
from rlinf.utils.logging import get_logger

# Between two looks at Ray's list of nodes while some are missing.
_LOOK_SECONDS = 1.0
# Between two lines of the countdown.
_SAY_SECONDS = 10.0
# From then on the countdown is a warning, as other waits are.
_LONG_SECONDS = 30.0


def alive_nodes() -> list[dict[str, Any]]:
    """Return Ray's description of the alive nodes."""
    return [node for node in ray.nodes() if node["Alive"]]


def wait_for_nodes(num_nodes: int | None) -> list[dict[str, Any]]:
    """Return Ray's description of the alive nodes, waiting until there are ``num_nodes``.

    Raises:
        ClusterError: They did not all come within ``RLINF_CLUSTER_TIMEOUT_SECONDS``.
    """
    limit = start_limit_seconds()
    started = said = time.monotonic()
    while True:
        alive = alive_nodes()
        if not num_nodes or len(alive) >= num_nodes:
            return alive
        waited = time.monotonic() - started
        if waited >= limit:
            raise ClusterError(
                f"Only {len(alive)} of {num_nodes} nodes have joined Ray within {limit:g} s. Run `ray start` on the "
                f"others, lower cluster.num_nodes, or raise {LIMIT_VARIABLE}."
            )
        if time.monotonic() >= said:
            # Seen with --quiet, too, once it takes longer than one would expect.
            level = logging.INFO if waited < _LONG_SECONDS else logging.WARNING
            get_logger(__name__).log(
                level, "Waiting for nodes: %d of %d, %.0f s left.", len(alive), num_nodes, limit - waited
            )
            said = time.monotonic() + _SAY_SECONDS
        time.sleep(_LOOK_SECONDS)


def start_probes(nodes: Sequence[dict[str, Any]], driver_node_id: str) -> list[Any]:
    """Start one probe on each node, all at once."""
    probe = ray.remote(probe_node)
    own = {name: os.environ[name] for name in VISIBLE_VARIABLES if name in os.environ}
    return [
        probe.options(
            num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ).remote(node["NodeID"], node["NodeManagerAddress"], is_own, own if is_own else None)
        for node in nodes
        for is_own in [node["NodeID"] == driver_node_id]
    ]


def gather_probes(probes: Sequence[Any]) -> list[NodeProbe]:
    """Wait for the probes that ``start_probes`` has started.

    Raises:
        ClusterError: A node cannot be used as it is, left while it was probed, or did not answer in time.
    """
    try:
        answers: list[NodeProbe] = results_of(probes, "a process on each node")
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ClusterError):
            raise error.cause from error
        raise
    except ray.exceptions.RayError as error:
        raise ClusterError(f"A node left Ray while it was looked at: {error}") from error
    return answers


def rank_nodes(probes: Sequence[NodeProbe], num_nodes: int | None, driver_node_id: str) -> list[NodeProbe]:
    """Put nodes in order of rank: by ``RLINF_NODE_RANK``, or else the driver's first and the others by address.

    Raises:
        ClusterError: Only some nodes have a rank, or the ranks are not 0 to N-1, each once.
    """
    declared = {probe.node_id: probe.declared_rank for probe in probes if probe.declared_rank not in {None, ""}}
    if not declared:
        ordered = sorted(probes, key=lambda probe: (probe.node_id != driver_node_id, probe.ip, probe.node_id))
        return ordered[: num_nodes or None]
    missing = [f"{probe.hostname} ({probe.ip})" for probe in probes if probe.node_id not in declared]
    if missing:
        raise ClusterError(
            f"RLINF_NODE_RANK is set on {len(declared)} nodes but not on {', '.join(missing)}; set it before "
            "`ray start` on all nodes, or on none."
        )
    if sorted(map(str, declared.values())) != sorted(map(str, range(len(probes)))):
        given = ", ".join(f"{probe.hostname}={probe.declared_rank}" for probe in probes)
        raise ClusterError(
            f"RLINF_NODE_RANK must be 0-{len(probes) - 1}, each once; found {given}. Stop Ray on the nodes "
            "that are wrong (`ray stop`), and start it again there with a rank of its own: "
            "ray_utils/start_ray.sh --rank N."
        )
    return sorted(probes, key=lambda probe: int(probe.declared_rank or 0))[: num_nodes or None]


def describe_node(rank: int, probe: NodeProbe) -> NodeInfo:
    """Return what placement needs to know of a node."""
    return NodeInfo(
        node_rank=rank,
        ip=probe.ip,
        hostname=probe.hostname,
        node_id=probe.node_id,
        num_accelerators=len(probe.accelerators.devices),
        accelerator_type=probe.accelerators.type,
        accelerator_models=tuple(entry.model for entry in probe.accelerators.devices),
        accelerator_ids=tuple(entry.id for entry in probe.accelerators.devices),
        cpu_slots=probe.cpu_slots,
        num_cpus=probe.num_cpus,
        memory_bytes=probe.memory_bytes,
        python_interpreter_path=probe.python,
    )
