"""What one node has: runs once on each node, without torch."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass, field

import psutil

from rlinf.scheduler.environment import environment_hashes
from rlinf.scheduler.network import listen_ip

# A driver that hangs must not hang the cluster's start.
_NVIDIA_SMI_TIMEOUT_SECONDS = 60


@dataclass(frozen=True)
class NodeProbe:
    """What a node says of itself.

    Attributes:
        node_id: Ray's id.
        ip: Address for other nodes.
        hostname: Name of the machine.
        declared_rank: ``RLINF_NODE_RANK``, as text, or None.
        accelerators: Model of each accelerator.
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
    accelerators: tuple[str, ...]
    cpu_slots: int
    num_cpus: int
    memory_bytes: int
    python: str
    environment_hashes: dict[str, str] = field(default_factory=dict, repr=False)


def probe_node(node_id: str, node_ip: str, with_environment: bool) -> NodeProbe:
    """Describe the node this runs on."""
    return NodeProbe(
        node_id=node_id,
        ip=listen_ip(node_ip),
        hostname=socket.gethostname(),
        declared_rank=os.environ.get("RLINF_NODE_RANK"),
        accelerators=_nvidia_models(),
        cpu_slots=int(os.environ.get("RLINF_CPU_SLOTS") or 0),
        num_cpus=len(psutil.Process().cpu_affinity())
        if hasattr(psutil.Process, "cpu_affinity")
        else os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        python=sys.executable,
        environment_hashes=environment_hashes() if with_environment else {},
    )


def _nvidia_models() -> tuple[str, ...]:
    """Ask nvidia-smi for the model of each GPU that this node may use; () where there is no driver."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    try:
        answer = subprocess.run(
            [tool, "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=_NVIDIA_SMI_TIMEOUT_SECONDS,
            check=True,
        )
    except (subprocess.SubprocessError, OSError):
        return ()
    return tuple(line.strip() for line in answer.stdout.splitlines() if line.strip())
