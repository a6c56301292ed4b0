"""Ranks of a training engine as processes that are forked from one which has imported everything: 0.1 s each."""

from __future__ import annotations

import contextlib
import datetime
import pickle
import tempfile
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.distributed as dist

from tests.ranks import warm_context

RankFunction = Callable[..., Any]


class RankError(AssertionError):
    """Ranks raised, died or took too long; the message holds what each of them did."""


def run_ranks(world_size: int, function: RankFunction, *arguments: Any, limit_seconds: float = 180.0) -> list[Any]:
    """Call ``function(rank, *arguments)`` on every rank of a new process group (gloo over a file).

    Args:
        world_size: Ranks.
        function: Of a module, as it is sent to other processes.
        *arguments: Sent to every rank.
        limit_seconds: After which ranks that have not answered are killed.

    Returns:
        What each rank returned, in rank order.

    Raises:
        RankError: A rank has no result.
    """
    results = outcomes(world_size, function, *arguments, limit_seconds=limit_seconds)
    failed = [f"rank {rank}: {result}" for rank, (is_ok, result) in enumerate(results) if not is_ok]
    if failed:
        raise RankError("\n".join(failed))
    return [result for _, result in results]


def outcomes(
    world_size: int, function: RankFunction, *arguments: Any, limit_seconds: float = 180.0
) -> list[tuple[bool, Any]]:
    """Return for each rank whether it returned, and its result or what became of it; see ``run_ranks``."""
    context = warm_context()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        pipes = [context.Pipe(duplex=False) for _ in range(world_size)]
        processes = [
            context.Process(target=_run, args=(rank, world_size, f"{folder}/store", send, function, arguments))
            for rank, (_, send) in enumerate(pipes)
        ]
        for process, (_, send) in zip(processes, pipes, strict=True):
            process.start()
            send.close()
            stack.callback(process.join)
            stack.callback(process.kill)
        return _collect([receive for receive, _ in pipes], time.monotonic() + limit_seconds)


def _collect(pipes: list[Connection], deadline: float) -> list[tuple[bool, Any]]:
    found: dict[int, tuple[bool, Any]] = {}
    while len(found) < len(pipes):
        ready = wait(
            [pipe for rank, pipe in enumerate(pipes) if rank not in found], timeout=deadline - time.monotonic()
        )
        if not ready:
            break
        for rank, pipe in enumerate(pipes):
            if pipe in ready:
                try:
                    found[rank] = pickle.loads(pipe.recv_bytes())
                except EOFError:
                    found[rank] = (False, "died")
    return [found.get(rank, (False, "no answer within the limit")) for rank in range(len(pipes))]


def _run(
    rank: int, world_size: int, store: str, answer: Connection, function: RankFunction, arguments: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    limit = datetime.timedelta(seconds=90)
    dist.init_process_group(
        "gloo", store=dist.FileStore(store, world_size), rank=rank, world_size=world_size, timeout=limit
    )
    try:
        result = (True, function(rank, *arguments))
    except Exception as error:  # noqa: BLE001 - whatever the rank raises is its result
        result = (False, f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
    # Not by ``send``, which would share the memory of tensors with a process that outlives this one.
    answer.send_bytes(pickle.dumps(result))
    answer.close()
    if dist.is_initialized():
        with contextlib.suppress(Exception):
            dist.destroy_process_group()
