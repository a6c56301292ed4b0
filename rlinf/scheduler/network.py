"""Addresses and ports of this machine."""

from __future__ import annotations

import os
import socket

import psutil

from rlinf.errors import ClusterError

NET_DEVICES_VARIABLE = "RLINF_COMM_NET_DEVICES"


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


def find_free_port() -> int:
    """Return a TCP port that nothing listens on right now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
