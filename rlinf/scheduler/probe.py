"""What one node has: runs once on each node, without torch."""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass, field

import psutil

from rlinf.scheduler.accelerators import CUDA_VARIABLE, Accelerator, find_accelerators
from rlinf.scheduler.environment import environment_hashes
from rlinf.scheduler.network import listen_ip


@dataclass(frozen=True)
class NodeProbe:
    """What a node says of itself.

    Attributes:
        node_id: Ray's id.
        ip: Address for other nodes.
        hostname: Name of the machine.
        declared_rank: ``RLINF_NODE_RANK``, as text, or None.
        accelerators: The accelerators that its processes may use.
        cpu_slots: ``RLINF_CPU_SLOTS``, 0 when unset.
        num_cpus: Logical cores.
        memory_bytes: Main memory.
        python: Interpreter of Ray's workers.
        environment_hashes: On the driver's node only: what its variables were at ``ray start``.
    """

    node_id: str
    ip: str
    hostname: str
    declared_rank: str | None
    accelerators: tuple[Accelerator, ...]
    cpu_slots: int
    num_cpus: int
    memory_bytes: int
    python: str
    environment_hashes: dict[str, str] = field(default_factory=dict, repr=False)


def probe_node(node_id: str, node_ip: str, with_environment: bool, visible_devices: str | None = None) -> NodeProbe:
    """Describe the node this runs on.

    Args:
        node_id: Ray's id.
        node_ip: Its address for Ray.
        with_environment: Whether to hash its variables.
        visible_devices: The driver's ``CUDA_VISIBLE_DEVICES``, on its own node; None is the value at ``ray start``.

    Raises:
        ClusterError: A variable of the node names a network interface or an accelerator that it does not have.
    """
    if visible_devices is None:
        # What the process was started with: Ray may have changed the variable since.
        visible_devices = psutil.Process().environ().get(CUDA_VARIABLE)
    return NodeProbe(
        node_id=node_id,
        ip=listen_ip(node_ip),
        hostname=socket.gethostname(),
        declared_rank=os.environ.get("RLINF_NODE_RANK"),
        accelerators=find_accelerators(visible_devices),
        cpu_slots=int(os.environ.get("RLINF_CPU_SLOTS") or 0),
        num_cpus=len(psutil.Process().cpu_affinity())
        if hasattr(psutil.Process, "cpu_affinity")
        else os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        python=sys.executable,
        environment_hashes=environment_hashes() if with_environment else {},
    )
