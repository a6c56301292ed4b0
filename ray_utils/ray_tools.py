"""What the shell scripts of this folder ask of Python: interfaces, reachability, and the nodes of a cluster.

Exits with 1 and one line on standard error when the answer is no.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time

from rlinf.errors import ClusterError

# Between two attempts to reach a machine that is not up yet.
_RETRY_SECONDS = 1.0


def main() -> None:
    """Run one subcommand."""
    parser = argparse.ArgumentParser(prog="ray_tools.py", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("interface", help="print the address that RLINF_COMM_NET_DEVICES names, if it is set")
    free = commands.add_parser("free", help="fail where another program listens on the port")
    free.add_argument("port", type=int)
    for name in ("reach", "joined"):
        command = commands.add_parser(name)
        command.add_argument("address", help="HEAD_IP:PORT")
        command.add_argument("--timeout", type=float, required=True)
    nodes = commands.add_parser("nodes", help="print the nodes of the cluster")
    nodes.add_argument("count", type=int, nargs="?")
    nodes.add_argument("--address")
    nodes.add_argument("--timeout", type=float)
    options = parser.parse_args()
    try:
        if options.command == "interface":
            say_interface()
        elif options.command == "free":
            require_free(options.port)
        elif options.command == "reach":
            reach(options.address, options.timeout)
        elif options.command == "joined":
            say_joined(options.address, options.timeout)
        else:
            say_nodes(options.count, options.address, options.timeout)
    except ClusterError as error:
        sys.exit(str(error))


def say_interface() -> None:
    """Print this machine's address on the chosen interface; nothing where none is chosen."""
    from rlinf.scheduler.probe import listen_ip

    address = listen_ip("")
    if address:
        sys.stdout.write(f"{address}\n")


def require_free(port: int) -> None:
    """Fail where this machine's port is taken."""
    with socket.socket() as mine:
        # As Ray's own server does: a connection that has just ended does not keep the port.
        mine.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            mine.bind(("", port))
        except OSError as error:
            raise ClusterError(
                f"Port {port} is taken on this machine ({error}). If a Ray from before holds it, end that with `ray "
                "stop`; otherwise choose another port with --port N, on all nodes."
            ) from error


def reach(address: str, timeout_seconds: float) -> None:
    """Wait until something accepts connections at ``HOST:PORT``."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
        except (OSError, ValueError) as error:
            if time.monotonic() >= deadline:
                raise ClusterError(
                    f"Nothing answers at {address} within {timeout_seconds:g} s ({error}). Is the head up, is this its "
                    "address on a network that this machine shares, and does a firewall let the port through?"
                ) from error
            time.sleep(_RETRY_SECONDS)
        else:
            return


def say_joined(address: str, timeout_seconds: float) -> None:
    """Wait until this machine's node is in the cluster; print the cluster's address."""
    import ray

    _, _, port = address.rpartition(":")
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            # "auto" is the Ray started last on this machine: where no interface is chosen, Ray has chosen the address.
            ray.init(
                address="auto" if address.startswith("auto:") else address, log_to_driver=False, logging_level="ERROR"
            )
            context = ray.get_runtime_context()
            me, found = context.get_node_id(), context.gcs_address
            if found.endswith(f":{port}") and any(node["NodeID"] == me and node["Alive"] for node in ray.nodes()):
                sys.stdout.write(f"{found}\n")
                return
            reason = "its node is not among the cluster's"
        except (ConnectionError, RuntimeError, TimeoutError) as error:
            reason = str(error)
        finally:
            ray.shutdown()
        if time.monotonic() >= deadline:
            raise ClusterError(f"This machine has not joined {address} within {timeout_seconds:g} s: {reason}")
        time.sleep(_RETRY_SECONDS)


def say_nodes(count: int | None, address: str | None, timeout_seconds: float | None) -> None:
    """Print rank, address and resources of each node, waiting for ``count`` of them."""
    import ray

    from rlinf.scheduler.attach import adopt_authentication, find_own_ray
    from rlinf.scheduler.nodes import describe_node, gather_probes, rank_nodes, start_probes, wait_for_nodes

    if timeout_seconds is not None:
        os.environ["RLINF_CLUSTER_TIMEOUT_SECONDS"] = str(timeout_seconds)
    address = address or os.environ.get("RAY_ADDRESS", "").strip() or find_own_ray()
    if not address:
        raise ClusterError(
            "No Ray that this user has started runs on this machine. Start one with ray_utils/start_ray.sh, or give "
            "--address HEAD_IP:PORT."
        )
    adopt_authentication(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, TimeoutError) as error:
        raise ClusterError(f"Cannot connect to the Ray at {address}: {error}") from error
    try:
        here = ray.get_runtime_context().get_node_id()
        alive = wait_for_nodes(count)
        probes = gather_probes(start_probes(alive, here))
        ranked = rank_nodes(probes, count, here)
    finally:
        ray.shutdown()
    declared = any(probe.declared_rank for probe in ranked)
    sys.stdout.write(f"The Ray at {address} has {len(probes)} node(s)")
    sys.stdout.write(".\n" if declared else "; RLINF_NODE_RANK is not set, so these ranks are by address.\n")
    for rank, probe in enumerate(ranked):
        node = describe_node(rank, probe)
        models = ", ".join(sorted(set(node.accelerator_models)))
        accelerators = f"{node.num_accelerators} x {models}" if models else "no accelerator"
        slots = f", {node.cpu_slots} CPU slots" if node.cpu_slots else ""
        memory = f"{node.memory_bytes / 2**30:.0f} GiB"
        sys.stdout.write(
            f"  {rank}  {node.ip:<15}  {node.hostname}  {accelerators}{slots}, {node.num_cpus} CPUs, {memory}\n"
        )


if __name__ == "__main__":
    main()
