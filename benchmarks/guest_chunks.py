"""How long a chunk takes between a host and a guest whose simulator costs nothing: two images for each environment.

Large arrays go through memory that both see; through the connection alone, as without that memory; and through TCP on
this machine, as between two.

    python benchmarks/guest_chunks.py > benchmarks/results/guest_chunks.json
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import rlinf.envs.guests
from rlinf.envs.guest_process import GuestProcess, GuestSetup, made_by_guest
from rlinf.envs.guest_remote import start_guest
from rlinf.envs.process_pool import ProcessPool
from rlinf.envs.raw_chunk import ChunkRequest, EpisodeRule
from rlinf.envs.single_env import SingleEnvSpec

ADAPTER = """
import numpy as np


class Images:
    action_low, action_high = np.full(7, -1.0, np.float32), np.full(7, 1.0, np.float32)

    def __init__(self, num_envs, size):
        image = np.random.default_rng(0).integers(0, 255, (size, size, 3), np.uint8)
        row = {"main_images": image, "wrist_images": image[::-1].copy(), "states": np.zeros(8, np.float32)}
        self.rows, self.nothing = [row] * num_envs, np.zeros(num_envs)

    def reset(self, rows, seeds):
        return [self.rows[row] for row in rows]

    def step(self, actions, active):
        return list(self.rows), self.nothing, self.nothing > 0, self.nothing > 0, None

    def render(self, row):
        return None

    def close(self):
        pass


def make_batch(num_envs, first_env, render, group_size, max_episode_steps, size):
    return Images(num_envs, size)
"""
NUM_STEPS = 8
WARM_CHUNKS = 3


class ConnectionGuest(GuestProcess):
    """A guest that shares no memory with its host."""

    def inherited(self) -> list[int]:
        """Return none."""
        return []


@contextmanager
def listening(folder: Path) -> Iterator[GuestSetup]:
    """Start the program that waits for hosts on this machine; yields how to reach it."""
    key = b"of this benchmark alone"
    environment = {**os.environ, "PYTHONPATH": str(folder), "RLINF_GUEST_KEY": key.decode()}
    command = [sys.executable, str(Path(rlinf.envs.guests.__path__[0])), "images", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as program:
        assert program.stderr is not None
        port = re.search(r"port (\d+)", program.stderr.readline())
        assert port is not None
        yield GuestSetup(adapter="images", address=("127.0.0.1", int(port[1])), key=key)
        program.terminate()


def milliseconds(process: Callable[..., GuestProcess], *, num_envs: int, size: int, chunks: int) -> list[float]:
    """Return how long chunks take, in order of length."""
    spec = SingleEnvSpec(
        env_type="guest",
        factory=made_by_guest,
        kwargs={"init_params": {"size": size}, "episode": {"group_size": 1, "max_episode_steps": 2**30}},
        num_envs=num_envs,
    )
    request = ChunkRequest(
        actions=np.zeros((num_envs, NUM_STEPS, 7), np.float32),
        active=np.ones(num_envs, np.bool_),
        steps=np.zeros(num_envs, np.int64),
        next_seeds=None,
        rule=EpisodeRule(2**30, ignore_terminations=False),
    )
    pool = ProcessPool(spec, 1, process=process)
    pool.reset(np.arange(num_envs), np.arange(num_envs))
    took = []
    for _ in range(WARM_CHUNKS + chunks):
        began = time.perf_counter()
        pool.send_chunk(request)
        pool.recv_chunk()
        took.append(1000.0 * (time.perf_counter() - began))
    pool.close()
    return sorted(took[WARM_CHUNKS:])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=60)
    parser.add_argument("--image-sizes", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--num-envs", type=int, nargs="+", default=[8, 32])
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "images.py").write_text(ADAPTER, encoding="utf-8")
        here = GuestSetup(adapter="images", python=sys.executable, env_vars={"PYTHONPATH": name})
        with listening(folder) as there:
            ways = {
                "shared_memory": partial(GuestProcess, setup=here),
                "connection": partial(ConnectionGuest, setup=here),
                "tcp": partial(start_guest, setup=there),
            }
            for size in args.image_sizes:
                for num_envs in args.num_envs:
                    row: dict[str, Any] = {"num_envs": num_envs, "image_size": size}
                    row["megabytes"] = round(2 * num_envs * size * size * 3 / 1e6, 2)
                    for way, process in ways.items():
                        took = milliseconds(process, num_envs=num_envs, size=size, chunks=args.chunks)
                        row[f"{way}_milliseconds"] = round(statistics.median(took), 2)
                    rows.append(row)
    print(json.dumps({"cores": os.cpu_count(), "chunks": args.chunks, "steps": NUM_STEPS, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
