"""Workers that get into every kind of wait, for tests that kill those they wait for; light to import."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from rlinf.errors import RLinfError
from rlinf.scheduler import Channel, Worker

# Travels through shared memory.
LARGE = 1 << 20


class Chaotic(Worker):
    def __init__(self, folder: Path | str | None = None, start_seconds: float = 0.0) -> None:
        super().__init__()
        if folder is not None:
            # Written whole: who reads the name of the file may read what is in it.
            path = Path(folder) / f"pid_{self._rank}"
            path.with_suffix(".new").write_text(str(os.getpid()))
            path.with_suffix(".new").rename(path)
        time.sleep(start_seconds)

    def attempt(self, method: str, *args: Any, note: str | None = None) -> tuple[str, Any]:
        """Call a method of this worker; return what it raised, or what it returned."""
        try:
            outcome = ("returned", getattr(self, method)(*args))
        except RLinfError as error:
            outcome = (type(error).__name__, str(error))
        if note is not None:
            Path(note).write_text(repr(outcome))
        return outcome

    async def attempt_async(self, method: str, *args: str | int) -> tuple[str, Any]:
        try:
            return ("returned", await getattr(self, method)(*args))
        except RLinfError as error:
            return (type(error).__name__, str(error))

    def identify(self) -> tuple[int, int]:
        return self._rank, os.getpid()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def fork(self, seconds: int) -> int | None:
        """Leave a child that holds all that this process has open; returns its process."""
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(seconds,))
        child.start()
        return child.pid

    def die_in(self, seconds: float) -> None:
        threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()

    def die_while_closing(self, seconds: float) -> None:
        self.on_shutdown = lambda: time.sleep(seconds) or os.kill(os.getpid(), signal.SIGKILL)

    # Messages

    def receive(self, group: str, rank: int, count: int = 1) -> list[Any]:
        return [self.recv(group, rank) for _ in range(count)]

    async def receive_async(self, group: str, rank: int) -> Any:
        return await self.recv(group, rank, async_op=True).async_wait()

    def flood(self, group: str, ranks: int, count: int) -> None:
        for number in range(count):
            self.send(np.full(LARGE, number % 251, np.uint8), group, ranks)

    def drain(self, group: str, rank: int) -> tuple[int, str, str]:
        """Receive until the sender dies; return how many arrays came, and how it ended."""
        count = 0
        try:
            while True:
                array = self.recv(group, rank)
                assert array.shape == (LARGE,)
                assert (array == count % 251).all(), f"array {count} is torn"
                count += 1
        except RLinfError as error:
            return count, type(error).__name__, str(error)

    def share(self, value: np.ndarray, seconds: float = 0.0) -> Any:
        if self._rank == 0:
            time.sleep(seconds)
        return self.broadcast(value)

    def exchange(self, group: str, channel: Channel, sends: bool) -> Any:
        if sends:
            time.sleep(60)
            return self.send_to(group, channel, [1, 2])
        return self.recv_from(group, channel)

    # Channels

    def put_all(self, channel: Channel, count: int, key: str = "default") -> None:
        for number in range(count):
            channel.put(number, key=key)

    def put_large(self, channel: Channel, count: int) -> None:
        for number in range(count):
            channel.put((number, np.full(LARGE, number % 251, np.uint8)))

    def take(self, channel: Channel, count: int, key: str = "default") -> list[Any]:
        return [channel.get(key=key) for _ in range(count)]

    def take_large(self, channel: Channel, count: int, seconds: float = 0.0) -> None:
        for _ in range(count):
            number, array = channel.get()
            assert (array == number % 251).all(), f"item {number} is torn"
            time.sleep(seconds)

    def then_sleep(self, method: str, *args: Channel | int) -> None:
        getattr(self, method)(*args)
        time.sleep(60)

    # Leases

    def hold_lock(self, channel: Channel, seconds: int) -> None:
        with self.device_lock:
            channel.put(self._rank)
            time.sleep(seconds)

    def ports(self, count: int) -> list[int]:
        return [self.acquire_free_port() for _ in range(count)]

    # Groups and channels by name

    def connect(self, name: str) -> str:
        return Channel.connect(name).name
