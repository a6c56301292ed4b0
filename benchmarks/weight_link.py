"""Updates of weights over a link of limited bandwidth: whole buckets against patches.

Owner and receiver are threads of this process with the syncers that a run uses; between them messages take as long as
their bytes at the link's bandwidth, one after the other, while both sides go on. The trainer holds 76 MB in float32 and
publishes bfloat16; between two updates every weight moves by one step of Adam's size (the learning rate).

    export OMP_NUM_THREADS=1
    python benchmarks/weight_link.py --output benchmarks/results/weight_link.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

import torch

from rlinf.config.schema.train import BucketConfig, WeightSyncerConfig
from rlinf.hybrid_engines.train.train_engine import WeightEntry
from rlinf.hybrid_engines.weights.bucket import entries_of, view_entry
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


class Link:
    """Messages between two ends; those with buckets take their time."""

    def __init__(self, bytes_per_second: float) -> None:
        self.bytes_per_second = bytes_per_second
        self.num_bytes = 0
        self.arrived: defaultdict[Any, SimpleQueue[Any]] = defaultdict(SimpleQueue)
        self.under_way: SimpleQueue[Any] = SimpleQueue()
        threading.Thread(target=self.carry, daemon=True).start()

    def carry(self) -> None:
        """Deliver messages, one after the other."""
        while (item := self.under_way.get()) is not None:
            route, message = item
            if isinstance(message, torch.Tensor):
                time.sleep(message.nbytes / self.bytes_per_second)
                self.num_bytes += message.nbytes
            self.arrived[route].put(message)


class End:
    """What a syncer needs of a worker."""

    _rank = 0

    def __init__(self, group: str, link: Link) -> None:
        self._group_name, self.link, self.node_id = group, link, group

    def find_nodes(self, group: str) -> list[str]:
        """Return the receiver's node."""
        return [group]

    def shared_buffer(self, num_bytes: int) -> torch.Tensor:
        """Return memory for a bucket."""
        return torch.empty(num_bytes, dtype=torch.uint8)

    def send(self, message: Any, group: str, ranks: Any, *, tag: str) -> None:
        """Put a message on the link."""
        copied = message.clone() if isinstance(message, torch.Tensor) else message
        self.link.under_way.put(((self._group_name, group, tag), copied))

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


class Side:
    """One kind of syncer between a trainer and a receiver."""

    def __init__(self, kind: str, bandwidth: float) -> None:
        self.link, self.version = Link(bandwidth * 1e9), 0
        cfg = WeightSyncerConfig(type=kind, bucket=BucketConfig(bucket_size=BUCKET_BYTES))
        owner: Any = End("ActorGroup", self.link)
        receiver: Any = End("RolloutGroup", self.link)
        self.publisher = WeightPublisher(owner, receivers={"RolloutGroup": 1}, cfg=cfg, dtype=torch.bfloat16)
        self.inbox = WeightInbox(make_weight_syncer(receiver, cfg), "ActorGroup")

    def update(self, trainer: Trainer) -> tuple[float, int]:
        """Bring the receiver to the trainer's weights; return seconds and bytes on the link."""
        self.version += 1
        self.link.num_bytes = 0
        started = time.perf_counter()
        sender = threading.Thread(
            target=self.publisher.publish, args=(cast("Any", trainer),), kwargs={"version": self.version}
        )
        sender.start()
        manifest, buckets = self.inbox.take(self.version)
        seconds = time.perf_counter() - started
        sender.join()
        for index, bucket in enumerate(buckets):
            for entry in entries_of(manifest, index):
                assert torch.equal(view_entry(entry, bucket), trainer.weights[entry.name].bfloat16())
        return seconds, self.link.num_bytes


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
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    rows = [compare(bandwidth, 1e-6, args.turns) for bandwidth in GIGABYTES_PER_SECOND]
    rows += [compare(0.1, rate, args.turns) for rate in LEARNING_RATES if rate != 1e-6]
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPO, stdout=subprocess.PIPE, text=True).stdout.strip()
    conditions = {"commit": commit, "cpu_cores": os.cpu_count(), "turns": args.turns, "load": os.getloadavg()}
    text = json.dumps({"rows": rows, "conditions": conditions}, indent=1)
    print(text)
    if args.output:
        args.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
