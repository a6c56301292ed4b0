"""What the control plane costs each worker, against the number of workers: the cost must not grow with the run.

Simulates runs of 10 to 10,000 workers, 8 to a node, in one process: the real planner, manager, routing and launch
code, with endpoints that count instead of sending. Prints JSON, and keeps it in ``benchmarks/results``:

    python benchmarks/control_plane.py --save

For each phase, per worker: executed bytecode instructions (the same on every machine), messages and bytes through the
manager, and microseconds on this machine. ``step`` is what each worker asks of the control plane at every step.
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

from rlinf.config.schema.cluster import ClusterConfig, EnvConfigs, HardwareConfig, NodeGroupConfig
from rlinf.data.messages.routing import destinations, sources
from rlinf.placement import AcceleratorType, NodeInfo, build_node_groups, find_node_group, plan_component
from rlinf.placement.strategies import PackedPlacementStrategy
from rlinf.scheduler.address import EndpointInfo, WorkerAddress, WorkerInfo
from rlinf.scheduler.cluster import Cluster
from rlinf.scheduler.comm.endpoint import Call
from rlinf.scheduler.environment import NodeSettings, launch_environment
from rlinf.scheduler.manager import Manager
from rlinf.scheduler.process_watch import ProcessId
from rlinf.scheduler.sharding import pieces

RESULTS = Path(__file__).resolve().parent / "results" / "control_plane.json"
SIZES = (10, 100, 1_000, 10_000)
PER_NODE = 8
# The machine does other things as well: the fastest of a few runs counts.
REPEATS = 5


@dataclass
class Traffic:
    """What has gone through the manager."""

    messages: int = 0
    bytes: int = 0
    replies: int = field(default=0, repr=False)


class CountingEndpoint:
    """Stands in for the manager's endpoint: calls its handlers directly and counts what it would send."""

    def __init__(self, traffic: Traffic) -> None:
        self.traffic = traffic
        self.handlers: dict[str, Callable[[Call], None]] = {}
        self.dead: dict[str, BaseException] = {}
        self.loop = None

    def serve(self, operation: str, handler: Callable[[Call], None]) -> None:
        self.handlers[operation] = handler

    def say_farewell(self) -> None:
        """Nothing: here messages do not queue."""

    def send(self, peer: EndpointInfo, kind: int, number: int, values: tuple[Any, Any], frames: Any) -> None:
        self.traffic.messages += 1
        self.traffic.bytes += len(pickle.dumps((kind, number, *values), protocol=5))

    def notify(self, peer: EndpointInfo, operation: str, args: tuple[Any, ...] = (), frames: Any = ()) -> None:
        self.send(peer, 0, 0, (operation, args), frames)

    def peer_died(self, uid: str, error: BaseException) -> None:
        self.dead[uid] = error

    def is_dead(self, uid: str) -> BaseException | None:
        return self.dead.get(uid)

    def query(self, sender: EndpointInfo, operation: str, *args: Any) -> None:
        """Let a worker query the manager."""
        self.traffic.messages += 1
        self.handlers[operation](Call(self, sender, 0, args, []))


class Simulation:
    """A run of ``num_workers`` workers in two groups, an environment and a policy group of half of them each.

    Args:
        num_workers: Workers, 10 or more.
    """

    def __init__(self, num_workers: int) -> None:
        self.num_workers = num_workers
        self.half = num_workers // 2
        num_nodes = -(-num_workers // PER_NODE)
        self.nodes = [
            NodeInfo(
                node_rank=rank,
                ip=f"10.0.{rank // 256}.{rank % 256}",
                node_id=f"{rank:056x}",
                num_accelerators=PER_NODE,
                accelerator_type=AcceleratorType.NV_GPU,
                accelerator_models=("H200",) * PER_NODE,
            )
            for rank in range(num_nodes)
        ]
        everywhere = f"0-{num_nodes - 1}"
        robots = [
            {"node_rank": rank, "robot_ip": f"10.1.0.{arm}"} for rank in range(num_nodes) for arm in range(PER_NODE)
        ]
        self.config = ClusterConfig(
            node_groups=[
                NodeGroupConfig(
                    label="gpu",
                    node_ranks=everywhere,
                    env_configs=[
                        EnvConfigs(node_ranks=rank, env_vars=[{"GLOO_SOCKET_IFNAME": f"eth{rank}"}])
                        for rank in range(num_nodes)
                    ],
                ),
                NodeGroupConfig(
                    label="robot", node_ranks=everywhere, hardware=HardwareConfig(type="Franka", configs=robots)
                ),
            ]
        )
        self.traffic = Traffic()
        self.endpoint = CountingEndpoint(self.traffic)
        runtime = SimpleNamespace(endpoint=self.endpoint, node_id="driver", spec=SimpleNamespace(keys=(b"", b"")))
        self.manager = Manager(runtime, lambda node_id: None)
        self.processes = [
            EndpointInfo(f"{rank:016x}", f"{rank // PER_NODE:056x}", f"ipc:///x/{rank}") for rank in range(num_workers)
        ]

    # Phases, in the order of a run

    def place(self) -> None:
        """Resolve the node groups, plan both groups from strings, and place one by a strategy."""
        groups = build_node_groups(self.nodes, self.config.node_groups)
        counts = [PER_NODE] * len(self.nodes)
        plan_component(f"0-{self.half - 1}", counts)
        plan_component(f"0-{self.half - 1}:0-{2 * self.half - 1}", counts)
        self.settings = NodeSettings(self.config.node_groups, groups)
        cluster = SimpleNamespace(
            get_node_group=lambda label: find_node_group(groups, label), get_node_info=lambda rank: self.nodes[rank]
        )
        ends = 0, self.num_workers - 1
        self.placements = PackedPlacementStrategy(*ends, node_group="gpu").get_placement(cluster)
        self.robots = PackedPlacementStrategy(*ends, node_group="robot").get_placement(cluster)

    def prepare(self) -> None:
        """Make the environment, and find the hardware, of each worker."""
        cluster = SimpleNamespace(_settings=self.settings, _head_hashes={}, get_node_info=lambda rank: self.nodes[rank])
        for placement, robot in zip(self.placements, self.robots, strict=True):
            variables = launch_environment(
                "gpu", placement, self.placements, "simulated", placement.visible_accelerators
            )
            Cluster.process_environment(cluster, placement, variables)
            Cluster.hardware_infos(cluster, placement)
            Cluster.hardware_infos(cluster, robot)

    def launch(self) -> None:
        """Launch both groups: everybody joins, meets at rank 0 and reports that it is ready."""
        for name, first in (("env", 0), ("policy", self.half)):
            self.endpoint.query(self.processes[0], "group_begin", name, self.half)
            for rank in range(self.half):
                process = self.processes[first + rank]
                address = WorkerAddress(name, rank, 1)
                self.endpoint.query(process, "join", str(address), address, ProcessId(1000 + first + rank, 0, 0))
                self.endpoint.query(process, "group_master", address, ("10.0.0.0", 29500) if rank == 0 else None)
                self.endpoint.query(process, "group_ready", self._info(name, rank, first))
            self.endpoint.query(self.processes[0], "group_wait", WorkerAddress(name, 0, 1))

    def find_peers(self) -> None:
        """Let each worker find whom it exchanges data with."""
        for rank in range(self.half):
            for peer in destinations(rank, self.half, self.half).peers:
                self.endpoint.query(self.processes[rank], "group_member", "policy", peer, True)
            for peer in sources(rank, self.half, self.half).peers:
                self.endpoint.query(self.processes[self.half + rank], "group_member", "env", peer, True)

    def step(self) -> None:
        """Route one step between groups of equal and of unequal sizes, as each rank does, with sharded channels."""
        fewer = max(1, self.half // 4)
        for rank in range(self.half):
            destinations(rank, self.half, self.half)
            sources(rank, self.half, self.half)
            destinations(rank, fewer * 4, fewer)
            pieces(rank, self.half, self.half * 2, 64)
            self.endpoint.query(self.processes[rank], "group_size", "policy")

    def lose_one(self) -> None:
        """Let one worker die: everybody is told once."""
        self.manager.worker_gone(WorkerAddress("env", self.half - 1, 1), "killed")

    def close(self) -> None:
        """End both groups."""
        for name in ("env", "policy"):
            self.endpoint.query(self.processes[0], "group_end", WorkerAddress(name, 0, 1))

    def _info(self, name: str, rank: int, first: int) -> WorkerInfo:
        process = self.processes[first + rank]
        node = (first + rank) // PER_NODE
        return WorkerInfo(
            WorkerAddress(name, rank, 1), rank, node, self.nodes[node].ip, 1000 + rank, (rank % PER_NODE,), (), process
        )


PHASES = ("place", "prepare", "launch", "find_peers", "step", "lose_one", "close")


def count_instructions(function: Callable[[], None]) -> int:
    """Run ``function`` and return how many bytecode instructions it has executed."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            count += 1
        return trace

    old = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(old)
    return count


def time_call(function: Callable[[], None]) -> float:
    """Run ``function`` and return how many seconds it took."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def measure(num_workers: int) -> dict[str, dict[str, float]]:
    """Return the cost of each phase per worker."""
    counted, *timed = [Simulation(num_workers) for _ in range(1 + REPEATS)]
    costs: dict[str, dict[str, float]] = {}
    for phase in PHASES:
        counted.traffic.messages = counted.traffic.bytes = 0
        instructions = count_instructions(getattr(counted, phase))
        seconds = min(time_call(getattr(simulation, phase)) for simulation in timed)
        costs[phase] = {
            "instructions": round(instructions / num_workers, 1),
            "messages": round(counted.traffic.messages / num_workers, 2),
            "bytes": round(counted.traffic.bytes / num_workers, 1),
            "microseconds": round(seconds / num_workers * 1e6, 1),
        }
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    report = {"per": "worker", "workers": {str(size): measure(size) for size in options.workers}}
    text = json.dumps(report, indent=2)
    print(text)
    if options.save:
        RESULTS.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
