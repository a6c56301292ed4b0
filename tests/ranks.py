"""Ranks of distributed tests, which are processes, without the seconds that each would take to import torch."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import torch.multiprocessing as mp

from tests.forked_workers import LANGUAGE_MODULES

# What ranks import; once, in the server that they are forked off, which ends with the test process.
MODULES = (
    "pytest",
    "torch._dynamo",
    "torch.distributed.checkpoint",
    "rlinf.hybrid_engines.train.fsdp",
    "rlinf.models.language.causal_lm",
    "rlinf.models.materialize",
    "rlinf.workers.actor.actor_worker",
)
# What they import if the test process has imported the package.
FURTHER_MODULES = {
    "transformers": (*LANGUAGE_MODULES, "transformers.models.qwen3.modeling_qwen3"),
    "megatron.core": (
        "rlinf.hybrid_engines.train.megatron.engine",
        "megatron.core.fusions.fused_softmax",
        "megatron.core.models.backends",
    ),
}


def run_ranks(function: Callable[..., None], *arguments: Any, num_ranks: int = 2) -> None:
    """Call a function in processes of its own, as ``function(rank, *arguments)``, and wait until all have ended.

    Args:
        function: Of a module that can be imported.
        *arguments: What can be pickled.
        num_ranks: Number of processes.

    Raises:
        Exception: A rank has raised, or died.
    """
    warm_context()
    mp.start_processes(function, arguments, nprocs=num_ranks, start_method="forkserver")


def warm_context() -> ForkServerContext:
    """Return how to start processes that have imported everything; a test process has one server for all of them."""
    context = multiprocessing.get_context("forkserver")
    further = [name for package, names in FURTHER_MODULES.items() if package in sys.modules for name in names]
    context.set_forkserver_preload([*MODULES, *further])
    with _import_path():
        forkserver.ensure_running()
    return context


@contextlib.contextmanager
def _import_path() -> Iterator[None]:
    """The server's own interpreter must find the tests; it keeps the path that it was started with."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
