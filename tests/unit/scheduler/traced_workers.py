"""Workers of the tracing tests."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any, NoReturn

import torch

from rlinf.scheduler import Channel, Worker


class Traced(Worker):
    def __init__(self) -> None:
        super().__init__()

    @Worker.timer("exchange")
    def exchange(self, count: int) -> None:
        peer = 1 - self._rank
        for number in range(count):
            if self._rank == 0:
                self.send(number, self._group_name, peer, tag="there")
                self.recv(self._group_name, peer, tag="back")
            else:
                self.send(self.recv(self._group_name, peer, tag="there"), self._group_name, peer, tag="back")
        tensor = torch.zeros(3)
        if self._rank == 0:
            self.send_tensor(tensor, self._group_name, peer)
        else:
            self.recv_tensor(tensor, self._group_name, peer)
        self.broadcast(self._rank)

    def put(self, name: str) -> None:
        Channel.connect(name).put("item", key="k")

    def get(self, name: str) -> Any:
        return Channel.connect(name).get(key="k")

    async def nap(self, name: str) -> Any:
        await asyncio.sleep(0.2)
        return await Channel.connect(name).get(async_op=True).async_wait()

    def wait_for_nothing(self) -> None:
        self.recv(self._group_name, 1 - self._rank, tag="never")

    def fail(self) -> NoReturn:
        raise ValueError("on purpose")

    def multiply(self, matrix_size: int) -> None:
        torch.ones(matrix_size, matrix_size) @ torch.ones(matrix_size, matrix_size)

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)
