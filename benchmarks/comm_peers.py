"""The processes of ``comm.py``: workers that talk by every means that is compared, each measured where it happens."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from multiprocessing.connection import Connection

import numpy as np
import torch

from rlinf.scheduler import Channel, Worker

PAGE = 4096
ECHO = """
import sys
from multiprocessing.connection import Connection
pipe = Connection(int(sys.argv[1]))
while True:
    pipe.send(pipe.recv())
"""


def make_payload(kind: str, num_bytes: int) -> object:
    """Return ``num_bytes`` as ``bytes``, a ``bytearray``, a numpy ``array`` or a ``tensor``."""
    if kind in {"bytes", "bytearray"}:
        return {"bytes": bytes, "bytearray": bytearray}[kind](num_bytes)
    array = np.zeros(num_bytes // 4, np.float32)
    return array if kind == "array" else torch.from_numpy(array)


def touch(payload: object) -> None:
    """Read one byte of every page, so that memory that was only mapped counts as not yet received."""
    if not isinstance(payload, (bytes, bytearray)):  # those are copies already
        data = payload.numpy() if isinstance(payload, torch.Tensor) else payload
        data.view(np.uint8)[::PAGE].sum()


class Peer(Worker):
    """One of eight."""

    def __init__(self) -> None:
        super().__init__()
        self._pipe: Connection | None = None

    def nothing(self) -> None:
        """What a call costs."""

    # Round trips: rank 0 measures, rank 1 answers

    def ping(self, kind: str, num_bytes: int, count: int) -> list[float]:
        payload = make_payload(kind, num_bytes)
        seconds = []
        for _ in range(count):
            started = time.perf_counter()
            self.send(payload, self._group_name, 1)
            self.recv(self._group_name, 1)
            seconds.append(time.perf_counter() - started)
        return seconds

    def pong(self, count: int) -> None:
        for _ in range(count):
            self.send(self.recv(self._group_name, 0), self._group_name, 0)

    def join_gloo(self, address: str) -> None:
        torch.distributed.init_process_group("gloo", init_method=address, rank=self._rank, world_size=2)

    def ping_gloo(self, num_bytes: int, count: int) -> list[float]:
        payload = torch.zeros(num_bytes // 4)
        seconds = []
        for _ in range(count):
            started = time.perf_counter()
            torch.distributed.send(payload, 1)
            torch.distributed.recv(payload, 1)
            seconds.append(time.perf_counter() - started)
        return seconds

    def pong_gloo(self, num_bytes: int, count: int) -> None:
        payload = torch.zeros(num_bytes // 4)
        for _ in range(count):
            torch.distributed.recv(payload, 0)
            torch.distributed.send(payload, 0)

    def ping_pipe(self, kind: str, num_bytes: int, count: int) -> list[float]:
        if self._pipe is None:
            # What multiprocessing.Pipe() makes, with a child that imports next to nothing.
            ours, theirs = socket.socketpair()
            self._child = subprocess.Popen(
                [sys.executable, "-c", ECHO, str(theirs.fileno())], pass_fds=[theirs.fileno()]
            )
            theirs.close()
            self._pipe = Connection(os.dup(ours.fileno()))
            ours.close()
        payload = make_payload("array" if kind == "tensor" else kind, num_bytes)
        seconds = []
        for _ in range(count):
            started = time.perf_counter()
            self._pipe.send(payload)
            self._pipe.recv()
            seconds.append(time.perf_counter() - started)
        return seconds

    def copy_memory(self, num_bytes: int, count: int) -> list[float]:
        """Seconds of copies between two warm buffers."""
        source, target = np.ones(num_bytes, np.uint8), np.ones(num_bytes, np.uint8)
        seconds = []
        for _ in range(count):
            started = time.perf_counter()
            np.copyto(target, source)
            seconds.append(time.perf_counter() - started)
        return seconds

    # Tensors in place: rank 0 sends a stream, rank 1 measures

    def send_in_place(self, way: str, num_bytes: int, count: int) -> None:
        payload = torch.zeros(num_bytes // 4)
        for _ in range(count + 1):
            if way == "rlinf":
                self.send_tensor(payload, self._group_name, 1)
            else:
                torch.distributed.send(payload, 1)

    def receive_in_place(self, way: str, num_bytes: int, count: int) -> list[float]:
        """Return the seconds between one tensor and the next, on average."""
        payload = torch.zeros(num_bytes // 4)
        for number in range(count + 1):
            if number == 1:
                started = time.perf_counter()
            if way == "rlinf":
                self.recv_tensor(payload, self._group_name, 0)
            else:
                torch.distributed.recv(payload, 0)
        return [(time.perf_counter() - started) / count]

    # Queues: returns when the work began and ended, on the machine's clock

    def put_many(self, queue: object, kind: str, num_bytes: int, count: int) -> tuple[float, float]:
        payload = make_payload(kind, num_bytes)
        started = time.monotonic()
        for _ in range(count):
            queue.put(payload)  # type: ignore[attr-defined]  # a Channel or Ray's Queue
        return started, time.monotonic()

    def get_many(self, queue: object, count: int) -> tuple[float, float]:
        started = time.monotonic()
        for _ in range(count):
            touch(queue.get())  # type: ignore[attr-defined]
        return started, time.monotonic()

    # Broadcasts from rank 0

    def broadcast_many(self, kind: str, num_bytes: int, receivers: int, count: int) -> list[float]:
        ranks = list(range(receivers + 1))
        groups = [(self._group_name, ranks)]
        payload = make_payload(kind, num_bytes) if self._rank == 0 else None
        seconds = []
        for _ in range(count):
            started = time.perf_counter()
            got = self.broadcast(payload, groups)
            if self._rank == 0:
                for rank in ranks[1:]:
                    self.recv(self._group_name, rank)
            else:
                touch(got)
                del got
                self.send(None, self._group_name, 0)
            seconds.append(time.perf_counter() - started)
        return seconds

    def on_shutdown(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
            self._child.kill()
            self._child.wait()


class TorchWorker(Worker):
    """Imports torch and answers: what the launch comparison launches."""

    def ready(self) -> str:
        return torch.__version__


class TorchActor:
    """The same as a bare Ray actor."""

    def ready(self) -> str:
        return torch.__version__


__all__ = ["Channel", "Peer", "TorchActor", "TorchWorker"]
