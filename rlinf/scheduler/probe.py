"""What one node has (accelerators, cores, addresses, free ports): runs once on each node, without torch."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

import psutil

from rlinf.errors import ClusterError
from rlinf.placement.accelerator_kinds import VISIBLE_VARIABLES
from rlinf.scheduler.accelerators import NodeAccelerators, find_accelerators
from rlinf.scheduler.environment import environment_hashes

_MOST_PORTS = 1000
"""Ports to try: the system chooses among those above 32767, as a rule."""

NET_DEVICES_VARIABLE = "RLINF_COMM_NET_DEVICES"


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
    accelerators: NodeAccelerators
    cpu_slots: int
    num_cpus: int
    memory_bytes: int
    python: str
    environment_hashes: dict[str, str] = field(default_factory=dict, repr=False)


def probe_node(
    node_id: str, node_ip: str, with_environment: bool, visible_devices: Mapping[str, str] | None = None
) -> NodeProbe:
    """Describe the node this runs on.

    Args:
        node_id: Ray's id.
        node_ip: Its address for Ray.
        with_environment: Whether to hash its variables.
        visible_devices: The driver's ``CUDA_VISIBLE_DEVICES`` and its like, on its own node; of others the values at
            ``ray start`` count.

    Raises:
        ClusterError: A variable of the node names a network interface or an accelerator that it does not have.
    """
    # What the process was started with: Ray may have changed the variables since.
    started_with = psutil.Process().environ()
    visible = {name: started_with[name] for name in VISIBLE_VARIABLES if name in started_with}
    return NodeProbe(
        node_id=node_id,
        ip=listen_ip(node_ip),
        hostname=socket.gethostname(),
        declared_rank=os.environ.get("RLINF_NODE_RANK"),
        accelerators=find_accelerators(visible | dict(visible_devices or {})),
        cpu_slots=int(os.environ.get("RLINF_CPU_SLOTS") or 0),
        num_cpus=len(psutil.Process().cpu_affinity())
        if hasattr(psutil.Process, "cpu_affinity")
        else os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        python=sys.executable,
        environment_hashes=environment_hashes() if with_environment else {},
    )


def listen_ip(node_ip: str) -> str:
    """Return the address to listen on: of an interface in ``RLINF_COMM_NET_DEVICES``, else the node's.

    Of several names, separated by commas, the first counts that this machine has, so that one value serves machines
    whose interfaces have different names.

    Args:
        node_ip: The node's address for Ray; the answer where the variable is not set.

    Raises:
        ClusterError: This machine has none of the interfaces that the variable names.
    """
    wanted = [name.strip() for name in os.environ.get(NET_DEVICES_VARIABLE, "").split(",") if name.strip()]
    if not wanted:
        return node_ip
    interfaces = {
        name: [str(entry.address) for entry in entries if entry.family == socket.AF_INET]
        for name, entries in psutil.net_if_addrs().items()
    }
    for name in wanted:
        if interfaces.get(name):
            return interfaces[name][0]
    usable = ", ".join(f"{name} ({addresses[0]})" for name, addresses in sorted(interfaces.items()) if addresses)
    raise ClusterError(
        f"{NET_DEVICES_VARIABLE}={','.join(wanted)}: {socket.gethostname()} has no such network interface with an IPv4 "
        f"address; it has {usable or 'none'}. Set the variable to one of them before `ray start` on that machine."
    )


def find_free_port(max_port_num: int | None = None) -> int:
    """Return a TCP port that nothing listens on right now.

    Args:
        max_port_num: Largest port that is allowed; None is any.

    Raises:
        ClusterError: No port up to there was found.
    """
    for _ in range(_MOST_PORTS):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind(("", 0))
            port = int(probe.getsockname()[1])
        if max_port_num is None or port <= max_port_num:
            return port
    raise ClusterError(f"No free port up to {max_port_num} was found in {_MOST_PORTS} attempts. Allow larger ones.")
