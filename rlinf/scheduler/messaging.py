"""Sends and receives of objects, on top of frames: what ``Worker.send`` and its relatives do."""

from __future__ import annotations

import pickle
from collections.abc import Hashable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from rlinf.errors import CommTimeoutError, PayloadError
from rlinf.scheduler.address import WorkerAddress
from rlinf.scheduler.comm.device_transfers import CollectiveGroupOptions
from rlinf.scheduler.comm.endpoint import Frame
from rlinf.scheduler.comm.futures import Promise
from rlinf.scheduler.comm.serialization import Fetch, Park, check_dense, decode, encode, fill_tensor, tensor_bytes
from rlinf.scheduler.comm.spans import MessageTrace
from rlinf.scheduler.comm.work import SENT, AsyncWork, Claim, default_timeout_seconds, gather, give_up_dropped
from rlinf.scheduler.runtime import current_runtime
from rlinf.utils.published import note_unused

if TYPE_CHECKING:
    import torch

Ranks = int | Sequence[int]

# No tag of a user is equal to it.
_BROADCAST = ("rlinf", "broadcast")


def options_of(tag: Hashable, options: CollectiveGroupOptions | None) -> tuple[Hashable, CollectiveGroupOptions | None]:
    """Return a message's tag and its options; by position, published code gives the options in the tag's place.

    One that has no effect is logged, once per process.
    """
    if isinstance(tag, CollectiveGroupOptions):
        tag, options = None, tag
    if options is not None and options.use_ring_broadcast:
        why = "a broadcast writes to the memory of a node once, whence all its receivers read"
        note_unused("CollectiveGroupOptions.use_ring_broadcast", why)
    return tag, options


class Messenger:
    """One worker's sends and receives.

    Args:
        address: The worker.
    """

    def __init__(self, address: WorkerAddress) -> None:
        self.address = address
        self._trace = MessageTrace(address)

    def send(
        self,
        obj: Any,
        group: str,
        ranks: Ranks,
        *,
        tag: Hashable,
        timeout: float | None,
        options: CollectiveGroupOptions | None = None,
    ) -> AsyncWork[None]:
        """Send an object to one or several ranks."""
        with self._trace.sending(tag, (group, ranks)):
            return self._send_frames(encode(obj, self._parker(group, ranks, options)), group, ranks, tag, timeout)

    def recv(self, group: str, rank: int, *, tag: Hashable, timeout: float | None) -> AsyncWork[Any]:
        """Receive an object from a rank."""
        future, claim = self._receive((group, rank), tag, timeout)
        label = self._trace.receiving(group, rank, tag)
        unpack = partial(decode, fetch=current_runtime().devices.fetch)
        return AsyncWork(future, unpack, partial(self._waits_for, group, rank, tag), label, claim)

    def shared_buffer(self, num_bytes: int) -> torch.Tensor:
        """Return uint8 memory that is sent to workers of this node without a copy."""
        import torch

        memory = current_runtime().endpoint.reserve(num_bytes) if num_bytes else None
        if memory is None:
            return torch.empty(num_bytes, dtype=torch.uint8)
        return torch.frombuffer(memory, dtype=torch.uint8)

    def send_tensor(
        self,
        tensor: torch.Tensor,
        group: str,
        ranks: Ranks,
        *,
        tag: Hashable,
        timeout: float | None,
        options: CollectiveGroupOptions | None = None,
    ) -> AsyncWork[None]:
        """Send a tensor's bytes to one or several ranks.

        Raises:
            PayloadError: The tensor is not dense.
        """
        check_dense(tensor, f"send_tensor at {self.address}")
        park = self._parker(group, ranks, options)
        with self._trace.sending(("tensor", tag), (group, ranks)):
            ticket = None if park is None else park(tensor)
            header = pickle.dumps((str(tensor.dtype), tuple(tensor.shape), ticket))
            frames: list[Frame] = [header, tensor_bytes(tensor)] if ticket is None else [header]
            return self._send_frames(frames, group, ranks, ("tensor", tag), timeout)

    def recv_tensor(
        self, tensor: torch.Tensor, group: str, rank: int, *, tag: Hashable, timeout: float | None
    ) -> AsyncWork[None]:
        """Receive bytes into a tensor.

        Raises:
            PayloadError: The tensor is not dense; when waited for: what was sent has another dtype or shape.
        """
        check_dense(tensor, f"recv_tensor at {self.address}")
        future, claim = self._receive((group, rank), ("tensor", tag), timeout)
        label = self._trace.receiving(group, rank, ("tensor", tag))
        fill = partial(_fill, tensor, current_runtime().devices.fetch)
        return AsyncWork(future, fill, partial(self._waits_for, group, rank, tag), label, claim)

    def broadcast(
        self,
        obj: Any,
        groups: Sequence[tuple[str, Ranks | None]],
        src: tuple[str, int] | None,
        *,
        timeout: float | None,
    ) -> AsyncWork[Any]:
        """Give every member of ``groups`` the object of ``src``."""
        members = [(name, rank) for name, ranks in groups for rank in self._ranks(name, ranks)]
        me = (self.address.group_name, self.address.rank)
        source = src or members[0]
        if me not in members or source not in members:
            raise ValueError(
                f"broadcast: {self.address} and the source {source} must both be in groups={list(groups)}."
            )
        if me != source:
            return self.recv(*source, tag=_BROADCAST, timeout=timeout)
        others = [member for member in members if member != me]
        with self._trace.sending(_BROADCAST, *others):
            frames = current_runtime().endpoint.share(encode(obj))
            sent = [self._send_frames(frames, name, rank, _BROADCAST, timeout) for name, rank in others]
        return gather(sent, lambda _: obj, partial(_describe_late, sent))

    def group_size(self, name: str) -> int:
        """Return the number of ranks of a group, waiting for its launch."""
        if name == self.address.group_name:
            runtime = current_runtime()
            if runtime.identity is not None:
                return runtime.identity.world_size
        what = f"{self.address} waits for the launch of group '{name}'"
        return AsyncWork[int](current_runtime().lookup_size(name), describe=what).wait(default_timeout_seconds())

    @property
    def node_id(self) -> str:
        """Ray's id of this process's node."""
        return current_runtime().endpoint.info.node_id

    def find_nodes(self, group: str) -> list[str]:
        """Return the node of each rank of a group, waiting for its launch."""
        runtime = current_runtime()
        if not runtime.spec.spans_nodes:
            return [self.node_id] * self.group_size(group)
        what = f"{self.address} waits for the launch of group '{group}'"
        found: AsyncWork[Any] = AsyncWork(runtime.lookup_group(group, True), describe=what)
        return [info.endpoint.node_id for info in found.wait(default_timeout_seconds())]

    def _parker(self, group: str, ranks: Ranks, options: CollectiveGroupOptions | None) -> Park | None:
        """Return what keeps large accelerator tensors back for their receiver; None where they go through the host."""
        runtime = current_runtime()
        receiver = runtime.outbox.known(group, ranks) if isinstance(ranks, int) else None
        return None if receiver is None else runtime.devices.parker(receiver.endpoint, options)

    def _ranks(self, name: str, ranks: Ranks | None) -> list[int]:
        if ranks is None:
            return list(range(self.group_size(name)))
        return [ranks] if isinstance(ranks, int) else list(ranks)

    def _send_frames(
        self, frames: Sequence[Frame], group: str, ranks: Ranks, tag: Hashable, timeout: float | None
    ) -> AsyncWork[None]:
        runtime = current_runtime()
        if isinstance(ranks, int):
            targets = [ranks]
        else:
            targets = list(ranks)
            frames = runtime.endpoint.share(frames)
        sent = [runtime.send(group, rank, tag, frames) for rank in targets]
        futures = [future for future in sent if future is not None]
        if not futures:
            return SENT
        describe = f"{self.address} sending to {group}:{','.join(map(str, targets))}"
        result: Promise[None] = Promise()
        seconds = default_timeout_seconds() if timeout is None else timeout
        late = CommTimeoutError(f"{describe}: the group was not launched within {seconds:g} s.")

        def give_up() -> None:
            for future in futures:
                future.cancel()

        def expire() -> None:
            if result.end(error=late):
                give_up()

        def settle(_: Future[None]) -> None:
            if all(future.done() for future in futures):
                errors = [future.exception() for future in futures if not future.cancelled()]
                result.end(error=next((error for error in errors if error is not None), None))

        runtime.endpoint.deadlines.add(result, seconds, expire)
        result.add_done_callback(runtime.endpoint.deadlines.remove)
        for future in futures:
            future.add_done_callback(settle)
        return AsyncWork(result, describe=describe, claim=Claim(give_up))

    def _receive(self, source: tuple[str, int], tag: Hashable, timeout: float | None) -> tuple[Future[Any], Claim]:
        give_up_dropped()
        runtime = current_runtime()
        mailbox = runtime.mailbox
        future = runtime.receive(source, tag, default_timeout_seconds() if timeout is None else timeout)
        give_up = partial(mailbox.give_up, source, tag, future)
        return future, Claim(give_up, partial(mailbox.take, future), runtime.endpoint.loop)

    def _waits_for(self, group: str, rank: int, tag: Hashable) -> str:
        label = "" if tag is None else f" with tag {tag!r}"
        return f"{self.address} waits for a message{label} from {group}:{rank}"


def _describe_late(works: Sequence[AsyncWork[Any]]) -> str:
    return "; ".join(work.describe for work in works if not work.done())


def _fill(tensor: torch.Tensor, fetch: Fetch, frames: Sequence[Any]) -> None:
    import torch

    dtype, shape, ticket = pickle.loads(frames[0])
    source = None if ticket is None else fetch(ticket)
    if (dtype, shape) != (str(tensor.dtype), tuple(tensor.shape)):
        raise PayloadError(
            f"recv_tensor got a tensor of {shape} {dtype} for one of {tuple(tensor.shape)} {tensor.dtype}; "
            "both sides must use the same shape and dtype."
        )
    if source is None:
        fill_tensor(tensor, frames[1])
        return
    with torch.no_grad():
        tensor.copy_(source)
