"""Worker groups whose calls return when a test says so; what waits for them is the scheduler's own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from rlinf.errors import WorkerDiedError
from rlinf.scheduler import WorkerGroupFuncResult
from rlinf.scheduler.address import WorkerAddress
from rlinf.scheduler.comm.endpoint import Reply
from rlinf.scheduler.comm.serialization import encode


@dataclass
class Call:
    """A call of one rank, and the reply that it waits for."""

    method: str
    rank: int
    args: tuple[Any, ...]
    keys: dict[str, Any]
    future: Future[Reply] = field(default_factory=Future)

    def give(self, value: Any) -> None:
        """Return ``value``."""
        self.future.set_result(Reply((True, 0.0), [memoryview(frame) for frame in encode(value)]))

    def fail(self, error: Exception) -> None:
        """Fail."""
        self.future.set_exception(error)


def death(group: str, rank: int = 0) -> WorkerDiedError:
    """Return what a call ends with whose worker is gone."""
    return WorkerDiedError(f"{group}:{rank} is gone.", group=group, rank=rank, node=0)


class Group:
    """Notes calls of its methods.

    Args:
        name: Its name.
        world_size: Ranks.
        on_call: Told of each call as it is made, to answer it at once or later.
    """

    def __init__(self, name: str, world_size: int, on_call: Callable[[Call], None] = lambda call: None) -> None:
        self.name, self.world_size, self.on_call = name, world_size, on_call
        self.calls: list[Call] = []
        self.targets: tuple[int, ...] = ()

    def relaunch(self, *, wait: bool) -> None:
        """Note that the workers are new ones."""
        del wait
        self.calls.append(Call("relaunch", 0, (), {}))
        self.on_call(self.calls[-1])

    def wait_ready(self) -> Group:
        return self

    def close(self) -> None:
        pass

    def execute_on(self, *ranks: int) -> Group:
        self.targets = ranks
        return self

    def __getattr__(self, method: str) -> Callable[..., WorkerGroupFuncResult]:
        if method.startswith("_"):
            raise AttributeError(method)

        def call(*args: Any, **keys: Any) -> WorkerGroupFuncResult:
            ranks, self.targets = self.targets or tuple(range(self.world_size)), ()
            made = [Call(method, rank, args, keys) for rank in ranks]
            for one in made:
                self.calls.append(one)
                self.on_call(one)
            return WorkerGroupFuncResult(method, [(WorkerAddress(self.name, one.rank), one.future) for one in made])

        return call
