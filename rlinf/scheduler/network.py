"""Addresses and ports of this machine."""

from __future__ import annotations

import os
import socket

import psutil

from rlinf.errors import ClusterError

NET_DEVICES_VARIABLE = "RLINF_COMM_NET_DEVICES"


def listen_ip(node_ip: str) -> str:
    """Return the address to listen on: of the first interface in ``RLINF_COMM_NET_DEVICES``, else the node's.

    Raises:
        ClusterError: The variable names an interface that this machine does not have.
    """
    wanted = os.environ.get(NET_DEVICES_VARIABLE, "").split(",")[0].strip()
    if not wanted:
        return node_ip
    interfaces = psutil.net_if_addrs()
    for address in interfaces.get(wanted, []):
        if address.family == socket.AF_INET:
            return str(address.address)
    raise ClusterError(
        f"{NET_DEVICES_VARIABLE}={wanted}: this machine has no such interface with an IPv4 address; "
        f"it has {', '.join(sorted(interfaces))}."
    )


def find_free_port() -> int:
    """Return a TCP port that nothing listens on right now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
