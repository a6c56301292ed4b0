"""A global batch between groups of unequal size: cut into contiguous shards by rank, never through a ``group_id``."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from rlinf.scheduler.channel import Channel
from rlinf.scheduler.comm.work import AsyncWork, gather
from rlinf.scheduler.messaging import Messenger
from rlinf.scheduler.runtime import current_runtime

# Field whose equal neighbours belong together.
GROUP_FIELD = "group_id"


def send_shards(
    messenger: Messenger, num_senders: int, group: str, channel: Channel, batch: Any, route: Hashable, batch_dim: int
) -> AsyncWork[Any]:
    """Put this sender's pieces of the global batch into ``channel``, one for each receiver that needs some of it."""
    rank = messenger.address.rank
    num_receivers = messenger.group_size(group)
    length = batch_length(batch, batch_dim)
    works = []
    for receiver, start, stop in pieces(rank, num_senders, num_receivers, length):
        check_cut(batch, start, stop, length, messenger.address, batch_dim)
        item = (length, cut(batch, start, stop, batch_dim))
        key = (route, messenger.address.group_name, rank, group, receiver)
        works.append(channel.put(item, key=key, async_op=True))
    return gather(works, lambda _: None, f"{messenger.address} sends shards to {group} over channel '{channel.name}'")


def receive_shard(
    messenger: Messenger, num_receivers: int, group: str, channel: Channel, route: Hashable, batch_dim: int
) -> AsyncWork[Any]:
    """Take this receiver's pieces out of ``channel`` and join them in order of the senders' ranks."""
    rank = messenger.address.rank
    runtime = current_runtime()
    senders = overlapping(rank, num_receivers, messenger.group_size(group))
    found = [runtime.lookup_member(group, sender, True) for sender in senders]
    works = []
    for sender, member in zip(senders, found, strict=True):
        key = (route, group, sender, messenger.address.group_name, rank)
        works.append(channel.take_from(key, member.result().endpoint.uid))

    def combine(items: list[Any]) -> Any:
        lengths = {length for length, _ in items}
        if len(lengths) > 1:
            raise ValueError(
                f"recv_from at {messenger.address}: the ranks of '{group}' sent parts of different lengths "
                f"{sorted(lengths)}; every sender's part must have the same length."
            )
        return join([piece for _, piece in items], batch_dim)

    return gather(works, combine, f"{messenger.address} waits for shards from {group} over channel '{channel.name}'")


def overlapping(rank: int, num_ranks: int, num_others: int) -> range:
    """Return the ranks of the other group whose part of the global batch shares elements with this rank's part.

    It takes the same time for any number of ranks, which all do this at every step.
    """
    return range(rank * num_others // num_ranks, -(-(rank + 1) * num_others // num_ranks))


def pieces(sender: int, num_senders: int, num_receivers: int, length: int) -> list[tuple[int, int, int]]:
    """Return (receiver, start, stop) for each piece of a sender's part of ``length`` elements.

    Raises:
        ValueError: The global batch does not divide by the receivers.
    """
    total = num_senders * length
    if total % num_receivers:
        raise ValueError(
            f"send_to: {num_senders} senders x {length} = {total} elements do not divide by {num_receivers} receivers "
            f"({total} % {num_receivers} = {total % num_receivers})."
        )
    shard = total // num_receivers
    first = sender * length
    return [
        (receiver, max(receiver * shard - first, 0), min((receiver + 1) * shard - first, length))
        for receiver in overlapping(sender, num_senders, num_receivers)
    ]


def batch_length(batch: Any, batch_dim: int) -> int:
    """Return the common length of a batch's leaves.

    Raises:
        ValueError: The batch has no leaves with that dimension, or their lengths differ.
    """
    lengths: dict[int, str] = {}
    _lengths(batch, batch_dim, "batch", lengths)
    if len(lengths) != 1:
        found = ", ".join(f"{path}: {length}" for length, path in lengths.items()) or "nothing to cut"
        raise ValueError(
            f"send_to: all parts of a batch need the same length along dimension {batch_dim}; found {found}."
        )
    return next(iter(lengths))


def _lengths(node: Any, batch_dim: int, path: str, lengths: dict[int, str]) -> None:
    if _is_array(node):
        if node.ndim > batch_dim:
            lengths.setdefault(int(node.shape[batch_dim]), path)
    elif isinstance(node, list):
        if batch_dim == 0:
            lengths.setdefault(len(node), path)
    else:
        for name, child in _children(node):
            _lengths(child, batch_dim, f"{path}.{name}", lengths)


def check_cut(batch: Any, start: int, stop: int, length: int, who: object, batch_dim: int) -> None:
    """Check that a piece's ends do not fall between elements of one group.

    Raises:
        ValueError: They do.
    """
    ids = dict(_children(batch)).get(GROUP_FIELD)
    if ids is None or (_is_array(ids) and ids.ndim != 1):
        return
    for edge in (start, stop):
        if 0 < edge < length and ids[edge - 1] == ids[edge]:
            raise ValueError(
                f"send_to at {who}: a shard would end at element {edge}, inside group {ids[edge]}; "
                f"make the shard size a multiple of the group size, or change the number of receivers."
            )


def cut(node: Any, start: int, stop: int, batch_dim: int) -> Any:
    """Return elements ``start`` to ``stop`` of every leaf."""
    if _is_array(node):
        return node[(slice(None),) * batch_dim + (slice(start, stop),)] if node.ndim > batch_dim else node
    if isinstance(node, list):
        return node[start:stop] if batch_dim == 0 else node
    return _rebuild(node, [cut(child, start, stop, batch_dim) for _, child in _children(node)])


def join(parts: Sequence[Any], batch_dim: int) -> Any:
    """Join batches along ``batch_dim``; what is no leaf with that dimension is taken from the first."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if _is_array(first):
        if first.ndim <= batch_dim:
            return first
        if isinstance(first, np.ndarray):
            return np.concatenate(parts, axis=batch_dim)
        return sys.modules["torch"].cat(list(parts), dim=batch_dim)
    if isinstance(first, list):
        return [element for part in parts for element in part] if batch_dim == 0 else first
    columns = zip(*([child for _, child in _children(part)] for part in parts), strict=True)
    return _rebuild(first, [join(column, batch_dim) for column in columns])


def _is_array(node: Any) -> bool:
    torch = sys.modules.get("torch")
    return isinstance(node, np.ndarray) or (torch is not None and isinstance(node, torch.Tensor))


def _children(node: Any) -> list[tuple[Any, Any]]:
    if isinstance(node, dict):
        return list(node.items())
    if isinstance(node, tuple):
        return list(enumerate(node))
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        return [(field.name, getattr(node, field.name)) for field in dataclasses.fields(node)]
    return []


def _rebuild(node: Any, children: list[Any]) -> Any:
    if isinstance(node, dict):
        return dict(zip(node, children, strict=True))
    if isinstance(node, tuple):
        return type(node)(*children) if hasattr(node, "_fields") else tuple(children)
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        names = [field.name for field in dataclasses.fields(node)]
        return dataclasses.replace(node, **dict(zip(names, children, strict=True)))
    return node
