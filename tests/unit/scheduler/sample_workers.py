"""Workers of the scheduler's tests; light to import, because every process of a group does."""
# Published keywords are not in the signatures.
# mypy: disable-error-code="call-arg, call-overload"

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

from rlinf.scheduler import Channel, Cluster, CollectiveGroupOptions, Worker


class Quitting(Worker):
    """Leaves its constructor by what is no ``Exception``."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        raise kind("not yet")


class Sample(Worker):
    def __init__(self, base: int = 0, fail_on: Any = ()) -> None:
        super().__init__()
        self.base = base
        self.calls = []
        if self._rank in fail_on:
            raise ValueError(f"cannot start rank {self._rank}")

    # Group calls

    def add(self, value: Any) -> Any:
        return self.base + value + self._rank

    def given(self) -> int:
        return self.base

    def pid(self) -> int:
        return os.getpid()

    def environ(self, *names: str) -> dict[Any, str | None]:
        return {name: os.environ.get(name) for name in names}

    def started_with(self, *names: str) -> dict[Any, bytes | None]:
        """Return variables as they were when the process began."""
        block = dict(entry.partition("=")[::2] for entry in Path("/proc/self/environ").read_text().split("\0"))
        return {name: block.get(name) for name in names}

    def note(self, value: int, seconds: float = 0.0) -> None:
        time.sleep(seconds)
        self.calls.append(value)

    def noted(self) -> list[Any]:
        return self.calls

    async def later(self, value: str | None, seconds: float = 0.0) -> str | None:
        await asyncio.sleep(seconds)
        return value

    def fail_on_rank(self, rank: int, others_sleep: float = 0.0) -> None:
        if self._rank == rank:
            raise KeyError("the reason")
        time.sleep(others_sleep)

    def raise_unpicklable(self) -> NoReturn:
        error = RuntimeError("holds a lock")
        error.lock = __import__("threading").Lock()
        raise error

    def die(self, seconds: float = 0.0) -> None:
        time.sleep(seconds)
        os.kill(os.getpid(), signal.SIGKILL)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def lock_twice(self) -> None:
        with self.device_lock, self.device_lock:
            pass

    def lock_in_turns(self) -> list[Any]:
        """Take the lock in a thread that waits for this one; then again here."""
        taken = []

        def take() -> None:
            with self.device_lock:
                taken.append("other")

        with self.device_lock:
            thread = threading.Thread(target=take)
            thread.start()
            time.sleep(0.2)
            taken.append("this")
        thread.join()
        with self.device_lock:
            taken.append("again")
        return taken

    def on_main_thread(self) -> bool:
        import threading

        return threading.current_thread() is threading.main_thread()

    def say(self, text: str) -> None:
        self.log_info(text)

    # Messages

    def send_all(self, items: list[int], group: str, rank: int, tag: str | None = None) -> None:
        for item in items:
            self.send(item, group, rank, tag=tag)

    def recv_all(
        self, count: int, group: str, rank: int, tag: str | None = None, timeout: float | None = None
    ) -> list[Any]:
        return [self.recv(group, rank, tag=tag, timeout=timeout) for _ in range(count)]

    def send_tagged(self, group: str, rank: int) -> None:
        for tag in ("a", "b", "a", None):
            self.send(f"for {tag}", group, rank, tag=tag)

    def recv_tagged(self, group: str, rank: int) -> list[Any]:
        return [self.recv(group, rank, tag=tag) for tag in (None, "b", "a", "a")]

    async def recv_async(self, group: str, rank: int) -> Any:
        return await self.recv(group, rank, async_op=True).async_wait()

    def then_recv(self, group: str, rank: int) -> Any:
        return self.recv(group, rank, async_op=True).then(lambda value: value * 2).wait(timeout=30)

    def echo(self, item: dict[str, Any]) -> dict[str, Any]:
        return item

    def share(self, value: str | None, groups: Any = (), src: Any = None) -> Any:
        return self.broadcast(value if self._rank == 0 else None, groups=groups, src=src)

    def pass_tensor(self, peer: int) -> list[Any] | None:
        import torch

        if self._rank == 0:
            self.send_tensor(torch.arange(6.0).reshape(2, 3).T, self._group_name, peer)
            return None
        into = torch.zeros(3, 2)
        self.recv_tensor(into, self._group_name, peer)
        return into.tolist()

    # Channels

    def put_items(self, channel: Channel, items: list[int], key: str = "default") -> None:
        for item in items:
            channel.put(item, key=key)

    def get_items(self, channel: Channel, count: int, key: str = "default") -> list[Any]:
        return [channel.get(key=key) for _ in range(count)]

    async def get_items_async(self, channel: Channel, count: int, key: str = "default") -> list[Any]:
        return [await channel.get(key=key, async_op=True).async_wait() for _ in range(count)]

    def make_channel(self, name: str) -> None:
        self.create_channel(name).put("from the creator")

    def put_into_own_channel(self, name: str, item: str) -> None:
        self.create_channel(name).put(item)

    def read_channel(self, name: str) -> Any:
        return Channel.connect(name).get()

    def spread(self, group: str, channel: Channel, batch: list[dict[str, list[int]]]) -> None:
        self.send_to(group, channel, batch[self._rank])

    def collect(self, group: str, channel: Channel) -> Any:
        return self.recv_from(group, channel)

    # Accelerator tensors

    def send_from_device(self, group: str, rank: int, count: int) -> None:
        import torch

        for number in range(count):
            tensor = torch.full((1 << 20,), float(number), device="cuda")
            self.send({"number": number, "tensor": tensor}, group, rank)
            tensor.fill_(-1)

    def recv_on_device(self, group: str, rank: int, count: int) -> bool:
        for number in range(count):
            message = self.recv(group, rank)
            assert message["tensor"].device.type == "cuda"
            assert message["number"] == number
            assert (message["tensor"] == number).all()
        return True

    # Published calls

    def describe_itself(self) -> dict[str, Any]:
        assert self.worker_info.address == self.worker_address
        return {
            "name": self.get_name(),
            "info": self.worker_info,
            "hardware": self.hardware_type,
            "in run": Cluster.has_initialized(),
        }

    def alive(self, *names: Any) -> list[bool]:
        return [self.check_worker_alive(name) for name in names]

    def exchange_published(self) -> Any:
        group, other = self._group_name, 1 - self._rank
        options = CollectiveGroupOptions(accel_max_ctas=2 + self._rank)
        self.send(object={"from": self._rank}, dst_group_name=group, dst_rank=other, options=options)
        # By position the options stand where the tag does.
        return self.recv(group, other, False, options)

    def share_later(self, value: str) -> tuple[Any, str]:
        groups = [(self._group_name, [0, 1]), (self._group_name, 2)]
        mine = value if self._rank == 1 else None
        work = self.broadcast(object=mine, groups=groups, src=(self._group_name, 1), async_op=True)
        return work.wait(), type(work).__name__

    # Leases

    def hold_lock(self, channel: Channel, seconds: int) -> None:
        with self.device_lock:
            channel.put(("locked", self._rank))
            time.sleep(seconds)

    def ports(self, count: int) -> list[int]:
        return [self.acquire_free_port() for _ in range(count)]

    # Timers

    @Worker.timer("timed")
    def timed(self) -> int:
        with self.worker_timer("inner"):
            return 1

    @Worker.timer("async")
    async def timed_async(self) -> int:
        await asyncio.sleep(0)
        return 2
