"""Communication against what else is there: prints one JSON of times, rates and ratios.

Everything runs between the same worker processes of one machine, in turns (ours, theirs, ours, theirs), so that
whatever else the machine does meets all of them; a ratio is the median over turns of the ratio within a turn.

    python benchmarks/comm.py                # a few minutes
    python benchmarks/comm.py --quick        # every path once, few samples
    python benchmarks/comm.py --output benchmarks/results/comm.json
    python benchmarks/comm.py --only in_place --output benchmarks/results/comm.json --update   # these rows alone
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import ray
from comm_peers import Peer, TorchActor, TorchWorker
from ray.util.queue import Queue

from rlinf.config.schema.cluster import ClusterConfig
from rlinf.scheduler import Channel, Cluster, NodePlacementStrategy, WorkerGroup
from rlinf.scheduler.address import WorkerAddress
from rlinf.scheduler.comm.endpoint import Reply
from rlinf.scheduler.comm.futures import Promise
from rlinf.scheduler.comm.serialization import decode, encode
from rlinf.scheduler.probe import find_free_port
from rlinf.scheduler.results import WorkerGroupFuncResult

KB, MB = 1 << 10, 1 << 20
NUM_PEERS = 8
ROWS = ("round_trip", "channel", "broadcast", "in_place", "call", "group_wait", "launch")
# Between two replies to a call of a simulated group.
REPLY_SECONDS = 0.0005
# Kind and size of each payload, and samples per turn: round trips (0: through channels alone), items through a channel,
# items through Ray's queue.
PAYLOADS = {
    "1 KB bytes": ("bytes", KB, 2000, 2000, 100),
    "1 KB tensor": ("tensor", KB, 1000, 1000, 100),
    "1 MB tensor": ("tensor", MB, 200, 200, 20),
    "64 MB tensor": ("tensor", 64 * MB, 8, 12, 3),
    "64 MB bytes": ("bytes", 64 * MB, 0, 12, 3),
    "64 MB bytearray": ("bytearray", 64 * MB, 0, 12, 3),
    "64 MB array": ("array", 64 * MB, 0, 12, 3),
}
# Size, and samples per turn, of tensors that are received in place.
IN_PLACE = {"1 MB": (MB, 200), "64 MB": (64 * MB, 8)}


def in_turns(turns: int, contenders: dict[str, Callable[[], list[float]]]) -> dict[str, list[list[float]]]:
    """Run all contenders one after the other, ``turns`` times; return each one's samples by turn."""
    samples: dict[str, list[list[float]]] = {name: [] for name in contenders}
    for _ in range(turns):
        for name, run in contenders.items():
            samples[name].append(run())
    return samples


def ratio(ours: list[list[float]], theirs: list[list[float]]) -> float:
    """Return the median over turns of the quotient of the medians."""
    return round(statistics.median(median(a) / median(b) for a, b in zip(ours, theirs, strict=True)), 3)


def median(samples: list[float]) -> float:
    return statistics.median(samples)


def times(turns: list[list[float]]) -> dict[str, float]:
    """Summarise seconds, in microseconds."""
    ordered = sorted(sample for turn in turns for sample in turn)
    p99 = ordered[min(int(len(ordered) * 0.99), len(ordered) - 1)]
    return {"p50_us": round(median(ordered) * 1e6, 1), "p99_us": round(p99 * 1e6, 1)}


class Bench:
    """All measurements between one group of workers."""

    def __init__(self, cluster: Cluster, turns: int, scale: float) -> None:
        self._turns = turns
        self._scale = scale
        self._names = iter(range(1_000_000))
        strategy = NodePlacementStrategy([0] * NUM_PEERS)
        self.peers: WorkerGroup[Any] = Peer.create_group().launch(cluster, strategy, name="peers")
        address = f"tcp://127.0.0.1:{find_free_port()}"
        self.peers.execute_on(0, 1).join_gloo(address).wait()

    def samples(self, count: int) -> int:
        return max(int(count * self._scale), 2)

    def pair(self, asking: Callable[[], Any], answering: Callable[[], Any] | None = None) -> list[float]:
        """Run a method of rank 0 against one of rank 1; return what rank 0 measured, without the first sample."""
        pending = answering() if answering else None
        seconds: list[float] = asking().wait()[0]
        if pending is not None:
            pending.wait()
        return seconds[1:]

    def round_trips(self, kind: str, size: int, count: int) -> dict[str, Any]:
        n = self.samples(count) + 1
        first, second = (lambda: self.peers.execute_on(0)), (lambda: self.peers.execute_on(1))
        got = in_turns(
            self._turns,
            {
                "rlinf": lambda: self.pair(lambda: first().ping(kind, size, n), lambda: second().pong(n)),
                "pipe": lambda: self.pair(lambda: first().ping_pipe(kind, size, n)),
                "gloo": lambda: self.pair(lambda: first().ping_gloo(size, n), lambda: second().pong_gloo(size, n)),
                "memcpy": lambda: self.pair(lambda: first().copy_memory(size, n)),
            },
        )
        return {
            **{name: times(turns) for name, turns in got.items()},
            "rlinf_mb_per_s": round(2 * size / median(sum(got["rlinf"], [])) / MB, 1),
            "memcpy_mb_per_s": round(size / median(sum(got["memcpy"], [])) / MB, 1),
            "time_vs_pipe": ratio(got["rlinf"], got["pipe"]),
            "time_vs_gloo": ratio(got["rlinf"], got["gloo"]),
            "speed_vs_memcpy": round(2 / ratio(got["rlinf"], got["memcpy"]), 3),
        }

    def queue_rate(self, make: Callable[[], Any], kind: str, size: int, users: int, count: int) -> list[float]:
        """Return items per second with so many producers and as many consumers, once."""
        queue = make()
        queue.put(None)  # Ray starts its queue's actor lazily
        queue.get()
        each = max(count // users, 2)
        consumers = self.peers.execute_on(*range(users, 2 * users)).get_many(queue, each)
        producers = self.peers.execute_on(*range(users)).put_many(queue, kind, size, each)
        spans = producers.wait() + consumers.wait()
        queue.close() if isinstance(queue, Channel) else queue.shutdown(force=True)
        return [users * each / (max(end for _, end in spans) - min(start for start, _ in spans))]

    def queues(self, kind: str, size: int, count: int, count_ray: int) -> dict[str, Any]:
        maxsize = 4 if size >= 64 * MB else 0
        result: dict[str, Any] = {}
        for users in (1, 4):
            got = in_turns(
                self._turns,
                {
                    "rlinf": lambda u=users: self.queue_rate(  # type: ignore[misc]
                        lambda: Channel.create(f"c{next(self._names)}", maxsize), kind, size, u, self.samples(count)
                    ),
                    "ray": lambda u=users: self.queue_rate(  # type: ignore[misc]
                        lambda: Queue(maxsize), kind, size, u, self.samples(count_ray)
                    ),
                    "memcpy": lambda: [1 / median(self.pair(lambda: self.peers.execute_on(0).copy_memory(size, 9)))],
                },
            )
            rates = {name: median(sum(turns, [])) for name, turns in got.items()}
            result[f"{users}+{users}"] = {
                **{f"{name}_items_per_s": round(rates[name], 1) for name in ("rlinf", "ray")},
                **{f"{name}_mb_per_s": round(rate * size / MB, 1) for name, rate in rates.items()},
                "rate_vs_ray": ratio(got["rlinf"], got["ray"]),
                "speed_vs_memcpy": ratio(got["rlinf"], got["memcpy"]),
            }
        return result

    def in_place(self, size: int, count: int) -> dict[str, Any]:
        """Compare streams of tensors that are received into a tensor of the receiver's."""
        n = self.samples(count)

        def stream(way: str) -> list[float]:
            pending = self.peers.execute_on(0).send_in_place(way, size, n)
            seconds: list[float] = self.peers.execute_on(1).receive_in_place(way, size, n).wait()[0]
            pending.wait()
            return seconds

        got = in_turns(
            self._turns,
            {
                "rlinf": lambda: stream("rlinf"),
                "gloo": lambda: stream("gloo"),
                "memcpy": lambda: self.pair(lambda: self.peers.execute_on(0).copy_memory(size, n + 1)),
            },
        )
        return {
            **{f"{name}_mb_per_s": round(size / median(sum(turns, [])) / MB, 1) for name, turns in got.items()},
            "speed_vs_gloo": round(1 / ratio(got["rlinf"], got["gloo"]), 3),
            "speed_vs_memcpy": round(1 / ratio(got["rlinf"], got["memcpy"]), 3),
        }

    def broadcasts(self, kind: str, size: int, count: int) -> dict[str, Any]:
        n = self.samples(count) + 1

        def run(receivers: int) -> list[float]:
            ranks = range(receivers + 1)
            seconds: list[list[float]] = self.peers.execute_on(*ranks).broadcast_many(kind, size, receivers, n).wait()
            return seconds[0][1:]

        got = in_turns(self._turns, {"to 1": lambda: run(1), "to 4": lambda: run(4)})
        return {**{name: times(turns) for name, turns in got.items()}, "time_4_vs_1": ratio(got["to 4"], got["to 1"])}

    def calls(self) -> dict[str, Any]:
        """Compare a call of a group of 4 idle workers with a call of one bare Ray actor."""
        actor = ray.remote(TorchActor).options(num_cpus=0).remote()
        ray.get(actor.ready.remote())
        n = self.samples(300)

        def measure(call: Callable[[], Any]) -> list[float]:
            seconds = []
            for _ in range(n):
                started = time.perf_counter()
                call()
                seconds.append(time.perf_counter() - started)
            return seconds

        got = in_turns(
            self._turns,
            {
                "rlinf group of 4": lambda: measure(lambda: self.peers.execute_on(0, 1, 2, 3).nothing().wait()),
                "ray actor": lambda: measure(lambda: ray.get(actor.ready.remote())),
            },
        )
        ray.kill(actor)
        return {
            **{name: times(turns) for name, turns in got.items()},
            "time_vs_ray": ratio(got["rlinf group of 4"], got["ray actor"]),
        }


def group_waits(turns: int, ranks: Sequence[int] = (64, 256, 1024)) -> dict[str, Any]:
    """Measure the CPU time of a thread that waits for one call of a group whose replies come every 0.5 ms.

    Nothing but the replies is simulated. The peer waits for as many futures through one queue, which every reply wakes.
    """

    def measure(count: int, wait: Callable[[list[Promise[Reply]]], Any]) -> list[float]:
        futures: list[Promise[Reply]] = [Promise() for _ in range(count)]
        frames = encode(None)

        def answer() -> None:
            for future in futures:
                time.sleep(REPLY_SECONDS)
                future.set_result(Reply((True, 0.0), frames))

        answering = threading.Thread(target=answer)
        answering.start()
        started = time.thread_time()
        wait(futures)
        seconds = time.thread_time() - started
        answering.join()
        return [seconds]

    def ours(futures: list[Promise[Reply]]) -> None:
        calls = [(WorkerAddress("group", rank), future) for rank, future in enumerate(futures)]
        WorkerGroupFuncResult("nothing", calls).wait()

    def theirs(futures: list[Promise[Reply]]) -> None:
        arrived: SimpleQueue[Promise[Reply]] = SimpleQueue()
        for future in futures:
            future.add_done_callback(arrived.put)
        for _ in futures:
            decode(arrived.get().result().frames)

    report: dict[str, Any] = {}
    for count in ranks:
        got = in_turns(turns, {"rlinf": partial(measure, count, ours), "queue": partial(measure, count, theirs)})
        report[f"{count} ranks"] = {
            **{f"{name}_cpu_ms": round(1000 * median(sum(samples, [])), 3) for name, samples in got.items()},
            "time_vs_queue": ratio(got["rlinf"], got["queue"]),
        }
    return report


def launch_once(kind: str) -> None:
    """Start Ray and four processes that import torch, and print the seconds to the first answer of all of them."""
    started = time.perf_counter()
    if kind == "rlinf":
        with Cluster() as cluster:
            TorchWorker.create_group().launch(cluster, NodePlacementStrategy([0] * 4)).ready().wait()
            print(time.perf_counter() - started, flush=True)
    else:
        ray.init(log_to_driver=False, include_dashboard=False)
        actors = [ray.remote(TorchActor).options(num_cpus=0).remote() for _ in range(4)]
        ray.get([actor.ready.remote() for actor in actors])
        print(time.perf_counter() - started, flush=True)


def launches(turns: int) -> dict[str, Any]:
    """Compare launches, each in a process of its own."""

    def run(kind: str) -> list[float]:
        command = [sys.executable, __file__, "--launch", kind]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return [float(done.stdout.strip().splitlines()[-1])]

    got = in_turns(turns, {"rlinf": lambda: run("rlinf"), "ray": lambda: run("ray")})
    return {
        **{f"{name}_seconds": round(median(sum(samples, [])), 2) for name, samples in got.items()},
        "time_vs_ray": ratio(got["rlinf"], got["ray"]),
    }


def updated(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return an older report with the rows of a newer one, which say at which commit and load they were measured."""
    about = {name: new[name] for name in ("commit", "load_before", "load_after", "turns")}
    rows = {name: {**row, "measured": about} for name, row in new.items() if isinstance(row, dict) and row}
    return {**old, **rows}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few samples, no launches")
    parser.add_argument("--only", nargs="*", default=list(ROWS))
    parser.add_argument("--payloads", nargs="*", choices=list(PAYLOADS), default=list(PAYLOADS))
    parser.add_argument("--turns", type=int, default=None)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--update", action="store_true", help="keep the rows of the output that are not measured now")
    parser.add_argument("--launch", choices=["rlinf", "ray"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.launch:
        launch_once(args.launch)
        return
    turns = args.turns or (1 if args.quick else 5)
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False, cwd=Path(__file__).parent
    )
    report: dict[str, Any] = {
        "commit": commit.stdout.strip(),
        "cpu_cores": os.cpu_count(),
        "python": platform.python_version(),
        "load_before": os.getloadavg(),
        "turns": turns,
    }
    if "launch" in args.only and not args.quick:
        report["launch"] = launches(min(turns, 3))
    if "group_wait" in args.only:
        report["group_wait"] = group_waits(turns)
    with Cluster(cluster_cfg=ClusterConfig(cpu_slots_per_node=NUM_PEERS)) as cluster:
        bench = Bench(cluster, turns, 0.02 if args.quick else 1.0)
        for name in args.payloads:
            kind, size, trips, items, items_ray = PAYLOADS[name]
            entry = report[name] = {}
            if trips and "round_trip" in args.only:
                entry["round_trip"] = bench.round_trips(kind, size, trips)
            if "channel" in args.only:
                entry["channel"] = bench.queues(kind, size, items, items_ray)
            if trips and "broadcast" in args.only:
                entry["broadcast"] = bench.broadcasts(kind, size, trips // 2)
        if "in_place" in args.only:
            report["in place"] = {name: bench.in_place(*row) for name, row in IN_PLACE.items()}
        if "call" in args.only:
            report["call"] = bench.calls()
    report["load_after"] = os.getloadavg()
    if args.update and args.output and args.output.exists():
        report = updated(json.loads(args.output.read_text()), report)
    text = json.dumps(report, indent=1)
    if args.output:
        args.output.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
