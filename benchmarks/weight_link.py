"""Updates of weights over a link of limited bandwidth: whole buckets against patches.

Owner and receiver are processes with the syncers that a run uses; between them messages take as long as their bytes at
the link's bandwidth, one after the other, while both sides go on. The trainer holds 76 MB in float32 and
publishes bfloat16; between two updates every weight moves by one step of Adam's size (the learning rate).

    export OMP_NUM_THREADS=1
    python benchmarks/weight_link.py --output benchmarks/results/weight_link.json
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import statistics
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

import torch
import xxhash

from rlinf.config.schema.train import BucketConfig, WeightSyncerConfig
from rlinf.hybrid_engines.train.train_engine import WeightEntry
from rlinf.hybrid_engines.weights.bucket import entries_of, view_entry
from rlinf.hybrid_engines.weights.memory import BucketMemory
from rlinf.scheduler.comm.work import AsyncWork
from rlinf.workers.actor.weight_publisher import WeightPublisher
from rlinf.workers.weight_inbox import WeightInbox
from rlinf.workers.weight_syncer import make_weight_syncer

REPO = Path(__file__).resolve().parents[1]
NUM_TENSORS, SIDE = 19, 1000
GIGABYTES_PER_SECOND = (0.1, 1.0, 10.0)
LEARNING_RATES = (1e-7, 1e-6, 5e-6)
# Several buckets, so that both ends and the link work at the same time.
BUCKET_BYTES = 4 << 20
# Of one bucket and its seal; more of them than two updates have buckets.
SLOT_BYTES, NUM_SLOTS = BUCKET_BYTES + 4096, 48


class Slots:
    """Memory that two processes share, for the tensors that are on their way between them.

    Args:
        name: Of the other process's memory; None makes one.
    """

    def __init__(self, name: str | None = None) -> None:
        self.memory = SharedMemory(name, create=name is None, size=NUM_SLOTS * SLOT_BYTES)
        self.bytes = torch.frombuffer(self.memory.buf, dtype=torch.uint8)
        self.next = 0
        if name is None:
            # Fresh pages cost more than what is measured.
            self.bytes.zero_()

    def put(self, tensor: torch.Tensor) -> tuple[int, int]:
        """Copy a tensor; return where it is."""
        place = self.next * SLOT_BYTES, tensor.nbytes
        self.next = (self.next + 1) % NUM_SLOTS
        self.at(place).copy_(tensor)
        return place

    def at(self, place: tuple[int, int]) -> torch.Tensor:
        """Return what is there; it stays until as many others have come as there are slots."""
        return self.bytes[place[0] : place[0] + place[1]]


class Link:
    """One process's end of a link: messages take as long as the tensors in them, one after the other.

    Args:
        pipe: To the other process.
        slots: For what this process sends.
        others: For what the other one sends.
        bytes_per_second: Of what this process sends.
    """

    def __init__(self, pipe: Connection, slots: Slots, others: Slots, bytes_per_second: float) -> None:
        self.pipe, self.slots, self.others, self.bytes_per_second = pipe, slots, others, bytes_per_second
        self.num_bytes = 0
        self.arrived: defaultdict[Any, SimpleQueue[Any]] = defaultdict(SimpleQueue)
        self.under_way: SimpleQueue[Any] = SimpleQueue()
        for run in (self.carry, self.deliver):
            threading.Thread(target=run, daemon=True).start()

    def send(self, route: Any, message: Any) -> None:
        """Put a message on its way; its memory may be used again."""
        is_tensor = isinstance(message, torch.Tensor)
        self.under_way.put((route, is_tensor, self.slots.put(message) if is_tensor else message))

    def carry(self) -> None:
        """Hand messages over when their time has passed."""
        while True:
            route, is_tensor, content = self.under_way.get()
            if is_tensor:
                time.sleep(content[1] / self.bytes_per_second)
                self.num_bytes += content[1]
            self.pipe.send((route, is_tensor, content))

    def deliver(self) -> None:
        """Take messages of the other process."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                route, is_tensor, content = self.pipe.recv()
                self.arrived[route].put(self.others.at(content) if is_tensor else content)


class End:
    """What a syncer needs of a worker."""

    _rank = 0

    def __init__(self, group: str, link: Link) -> None:
        self._group_name, self.link, self.node_id = group, link, group
        self.memory = BucketMemory()

    def find_nodes(self, group: str) -> list[str]:
        """Return the receiver's node."""
        return [group]

    def shared_buffer(self, num_bytes: int) -> torch.Tensor:
        """Return memory for a bucket."""
        return self.memory.allocate(num_bytes)

    def send(self, message: Any, group: str, ranks: Any, *, tag: str) -> None:
        """Put a message on the link."""
        self.link.send((self._group_name, group, tag), message)

    def recv(self, group: str, rank: int, async_op: bool = False, *, tag: str, timeout: float | None = None) -> Any:
        """Take the next message."""
        message = self.link.arrived[group, self._group_name, tag].get()
        future: Future[Any] = Future()
        future.set_result(message)
        return AsyncWork(future) if async_op else message


class Trainer:
    """Weights that move."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.weights = {
            f"layers.{number}.weight": 0.02 * torch.randn(SIDE, SIDE, generator=generator)
            for number in range(NUM_TENSORS)
        }

    def step(self, learning_rate: float) -> None:
        """Move every weight by the learning rate."""
        for weight in self.weights.values():
            weight.add_(torch.randn_like(weight).sign_(), alpha=learning_rate)

    def describe_weights(self, form: str) -> Iterator[WeightEntry]:
        """See ``TrainEngine``."""
        return (WeightEntry(*named) for named in self.weights.items())

    def export_weights(self, form: str, *, owned: bool) -> Iterator[tuple[str, torch.Tensor]]:
        """See ``TrainEngine``."""
        return iter(self.weights.items())


def digests(tensors: Iterable[tuple[str, torch.Tensor]]) -> dict[str, int]:
    """Return a hash of each tensor's bytes."""
    return {name: xxhash.xxh3_64_intdigest(tensor.view(torch.uint8).numpy().data) for name, tensor in tensors}


def receive(kind: str, pipe: Connection, orders: Connection, names: tuple[str, str]) -> None:
    """Take the updates that are ordered; reply with the time and what each tensor is then. Runs in a process."""
    torch.set_num_threads(1)
    slots = [Slots(name) for name in names]
    link = Link(pipe, slots[1], slots[0], 1e12)
    inbox = WeightInbox(make_weight_syncer(cast("Any", End("RolloutGroup", link)), syncer_config(kind)), "ActorGroup")
    while version := orders.recv():
        manifest, buckets = inbox.take(version)
        ended = time.perf_counter()
        weights = (
            (entry.name, view_entry(entry, bucket))
            for index, bucket in enumerate(buckets)
            for entry in entries_of(manifest, index)
        )
        orders.send((ended, digests(weights)))


def syncer_config(kind: str) -> WeightSyncerConfig:
    """Return the section of one kind of syncer."""
    return WeightSyncerConfig(type=kind, bucket=BucketConfig(bucket_size=BUCKET_BYTES))


class Side:
    """One kind of syncer between a trainer and a receiver in a process of its own."""

    def __init__(self, kind: str, bandwidth: float) -> None:
        context, self.version = multiprocessing.get_context("spawn"), 0
        pipe, other_pipe = context.Pipe()
        self.orders, others_orders = context.Pipe()
        self.slots = Slots(), Slots()
        names = self.slots[0].memory.name, self.slots[1].memory.name
        self.process = context.Process(target=receive, args=(kind, other_pipe, others_orders, names), daemon=True)
        self.process.start()
        self.link = Link(pipe, self.slots[0], self.slots[1], bandwidth * 1e9)
        owner: Any = End("ActorGroup", self.link)
        self.publisher = WeightPublisher(
            owner, receivers={"RolloutGroup": 1}, cfg=syncer_config(kind), dtype=torch.bfloat16
        )

    def update(self, trainer: Trainer) -> tuple[float, int]:
        """Bring the receiver to the trainer's weights; return seconds and bytes on the link."""
        self.version += 1
        self.link.num_bytes = 0
        self.orders.send(self.version)
        # The receiver is waiting by then.
        time.sleep(0.01)
        started = time.perf_counter()
        self.publisher.publish(cast("Any", trainer), version=self.version)
        ended, found = self.orders.recv()
        assert found == digests((name, weight.bfloat16()) for name, weight in trainer.weights.items())
        # All processes of a machine have one such clock.
        return ended - started, self.link.num_bytes

    def close(self) -> None:
        """End the receiver."""
        self.orders.send(0)
        self.process.join()
        for slots in self.slots:
            slots.memory.unlink()


def compare(bandwidth: float, learning_rate: float, turns: int) -> dict[str, float]:
    """Update over both kinds of syncer in turns."""
    trainer = Trainer()
    sides = {kind: Side(kind, bandwidth) for kind in ("bucket", "patch")}
    found: dict[str, list[tuple[float, int]]] = {kind: [] for kind in sides}
    for turn in range(turns + 2):
        trainer.step(learning_rate)
        for kind, side in sides.items():
            measured = side.update(trainer)
            # The first update is whole, and the second touches fresh memory.
            if turn > 1:
                found[kind].append(measured)
    for side in sides.values():
        side.close()
    dense, patch = found["bucket"], found["patch"]
    return {
        "gigabytes_per_second": bandwidth,
        "learning_rate": learning_rate,
        "dense_seconds": statistics.median(seconds for seconds, _ in dense),
        "patch_seconds": statistics.median(seconds for seconds, _ in patch),
        "speedup_of_fastest": min(seconds for seconds, _ in dense) / min(seconds for seconds, _ in patch),
        "speedup": statistics.median(a / b for (a, _), (b, _) in zip(dense, patch, strict=True)),
        "bytes_ratio": statistics.median(a / b for (_, a), (_, b) in zip(dense, patch, strict=True)),
    }


def main() -> None:
    """Measure every link and learning rate; print or write one JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="the slowest link alone")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = [compare(bandwidth, 1e-6, args.turns) for bandwidth in GIGABYTES_PER_SECOND[: 1 if args.quick else None]]
    rows += [compare(0.1, rate, args.turns) for rate in LEARNING_RATES if rate != 1e-6 and not args.quick]
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPO, stdout=subprocess.PIPE, text=True).stdout.strip()
    conditions = {"commit": commit, "cpu_cores": os.cpu_count(), "turns": args.turns, "load": os.getloadavg()}
    text = json.dumps({"rows": rows, "conditions": conditions}, indent=1)
    print(text)
    if args.output:
        args.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
